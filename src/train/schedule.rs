//! The order in which a pipeline stage works on its microbatches.

/// One piece of work on one microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Forward(u32),
    Backward(u32),
}

/// 1F1B without interleaving (Narayanan et al., arXiv:2104.04473; Megatron-LM,
/// `forward_backward_pipelining_without_interleaving`): as many forwards as there are stages
/// below, then one forward and one backward in turn, then the backwards left.
pub fn one_forward_one_backward(stages: u32, stage: u32, microbatches: u32) -> Vec<Work> {
    assert!(stage < stages);
    let warmup = (stages - stage - 1).min(microbatches);
    let mut work: Vec<Work> = (0..warmup).map(Work::Forward).collect();
    for turn in 0..microbatches - warmup {
        work.push(Work::Forward(warmup + turn));
        work.push(Work::Backward(turn));
    }
    work.extend((microbatches - warmup..microbatches).map(Work::Backward));
    work
}

/// Most microbatches that are between their forward and the end of their backward at once.
pub fn in_flight(stages: u32, stage: u32, microbatches: u32) -> u32 {
    (stages - stage).min(microbatches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_microbatch_once_and_no_more_in_flight_than_said() {
        for (stages, microbatches) in [(1, 1), (1, 4), (2, 4), (4, 2), (4, 9)] {
            for stage in 0..stages {
                let work = one_forward_one_backward(stages, stage, microbatches);
                let (mut forward, mut backward, mut most) = (0, 0, 0);
                for item in work {
                    match item {
                        Work::Forward(m) => {
                            assert_eq!(m, forward);
                            forward += 1;
                        }
                        Work::Backward(m) => {
                            assert_eq!(m, backward);
                            backward += 1;
                        }
                    }
                    assert!(backward <= forward);
                    most = most.max(forward - backward);
                }
                assert_eq!((forward, backward), (microbatches, microbatches));
                assert_eq!(most, in_flight(stages, stage, microbatches));
            }
        }
    }

    #[test]
    fn as_megatron_at_two_stages() {
        use Work::{Backward as B, Forward as F};
        let first = one_forward_one_backward(2, 0, 3);
        assert_eq!(first, [F(0), F(1), B(0), F(2), B(1), B(2)]);
        assert_eq!(
            one_forward_one_backward(2, 1, 3),
            [F(0), B(0), F(1), B(1), F(2), B(2)]
        );
    }
}
