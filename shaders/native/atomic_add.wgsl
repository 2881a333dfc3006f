// Purpose: what a fold in arrival order stands for, on a real adapter: f32 additions by
//   compare-and-exchange on shared memory. Only adapters run it, never a training step.
// Operands:
//   addends       f32[writers][width]
//   targets       u32[writers], the first accumulator of each writer
//   permutations  u32[repeats][writers], writers in the order of their tickets
//   accumulators  u32[repeats][elements], bits of f32; the caller puts the start there
//   state         u32[1 + 2 * repeats]: the fault (see below), then the next ticket and whose turn
//                 it is, for each repeat
//   params        u32[6]: writers, width, elements, ticketed (0 or 1), rounds, attempts
// Immediate: the dispatch's first repeat.
// Grid: a workgroup for each repeat (x) and ticket (y), in one dispatch or several. A workgroup is
//   one writer; which one, its ticket says, and tickets are taken by workgroups that run. So the
//   lowest ticket of all that wait is held by one that can go on, whatever the schedule.
// Order: ticketed, that of the permutation. Else none: whatever the adapter does. Writers begin at
//   different columns, so that those that run at once meet in different orders along a row.
// Every loop ends: after `rounds` of looks at the turn the fault is 1, after `attempts` to exchange
//   2; and 3 where a loop over columns was ended before its time.

@group(0) @binding(0) var<storage, read_write> addends: array<f32>;
@group(0) @binding(1) var<storage, read_write> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> permutations: array<u32>;
@group(0) @binding(3) var<storage, read_write> accumulators: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> params: array<u32>;

var<immediate> first_repeat: u32;

const LANES: u32 = 64u;
const LATE: u32 = 1u;
const CROWDED: u32 = 2u;
const CUT_SHORT: u32 = 3u;

var<workgroup> taken: u32;

// The bits of a sum, a NaN as the canonical one: by integers, which no compiler rewrites.
fn word(sum: f32) -> u32 {
    let bits = bitcast<u32>(sum);
    return select(bits, 0x7fc00000u, (bits & 0x7fffffffu) > 0x7f800000u);
}

// Looks by an exchange that changes nothing: llvmpipe makes of atomicLoad a plain load, which its
// compiler may take out of a loop.
fn is_turn(turn: u32, ticket: u32) -> bool {
    return atomicCompareExchangeWeak(&state[turn], ticket, ticket).exchanged;
}

fn comes(turn: u32, ticket: u32) -> bool {
    if (is_turn(turn, ticket)) { return true; }
    if (is_turn(turn, ticket)) { return true; }
    if (is_turn(turn, ticket)) { return true; }
    return is_turn(turn, ticket);
}

// Many looks a round: llvmpipe ends all loops of an invocation after 65,535 rounds together.
fn await_turn(turn: u32, ticket: u32) {
    for (var round = 0u; round < params[4]; round = round + 1u) {
        if (comes(turn, ticket)) { return; }
        if (comes(turn, ticket)) { return; }
        if (comes(turn, ticket)) { return; }
        if (comes(turn, ticket)) { return; }
        // Another has given up: nobody's turn need come.
        if (atomicLoad(&state[0]) != 0u) { return; }
    }
    atomicMax(&state[0], LATE);
}

fn add(place: u32, addend: f32) {
    var seen = atomicLoad(&accumulators[place]);
    for (var attempt = 0u; attempt < params[5]; attempt = attempt + 1u) {
        let sum = word(bitcast<f32>(seen) + addend);
        let answer = atomicCompareExchangeWeak(&accumulators[place], seen, sum);
        if (answer.exchanged) {
            return;
        }
        seen = answer.old_value;
    }
    atomicMax(&state[0], CROWDED);
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let repeat = first_repeat + group.x;
    let next = 1u + 2u * repeat;
    let turn = next + 1u;
    if (lane == 0u) {
        taken = atomicAdd(&state[next], 1u);
    }
    let ticket = workgroupUniformLoad(&taken);
    let writer = permutations[repeat * params[0] + ticket];
    if (lane == 0u && params[3] == 1u) {
        await_turn(turn, ticket);
    }
    // What the writers before have added is seen below.
    storageBarrier();
    let start = repeat * params[2] + targets[writer];
    var k = lane;
    for (; k < params[1]; k = k + LANES) {
        let column = (k + ticket * LANES) % params[1];
        add(start + column, addends[writer * params[1] + column]);
    }
    if (k < params[1]) {
        atomicMax(&state[0], CUT_SHORT);
    }
    // What is added above is seen by the writer whose turn comes.
    storageBarrier();
    if (lane == 0u) {
        atomicStore(&state[turn], ticket + 1u);
    }
}
