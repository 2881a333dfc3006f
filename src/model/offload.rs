//! Activations that wait in the host's memory for their backward: Megatron-LM's
//! `--cpu-offloading-num-layers N`, which gives the first N of a model's L layers to Transformer
//! Engine (`pytorch/cpu_offload.py`, `DefaultOffloadSynchronizer`).
//!
//! What a layer keeps for its backward is copied to pinned memory on a stream of its own behind the
//! layer's forward, and back before its backward. Layer i has left, and its memory is given back,
//! before the forward of layer L - N + i; it comes back, into new memory, from the backward of
//! layer L - N + i - 1 on. So L - N layers are on the device at any time. Four waits order this:
//!
//! * `LAYER.offload`: the copies wait for the forward that writes what they read;
//! * `LAYER.offload.done`: the memory is given back once they have read it;
//! * `LAYER.reload`: what comes back waits for the former users of its new memory;
//! * `LAYER.reload.done`: the backward waits for what comes back.
//!
//! With Megatron-LM's `cpu_offloading_double_buffering` layers come back into two buffers that live
//! throughout, layer i into the one numbered i modulo 2 (`cpu_offload_v1.py`,
//! `bulk_reload_group`), and none more than one layer ahead, as the other buffer is in use. Then
//! `LAYER.reload` waits for the backward of layer i + 2, which read that buffer last.
//!
//! Transformer Engine records an event for each tensor, here there is one a layer, behind the last;
//! it leaves tensors below 2^20 elements on the device (256 Ki in some versions), here everything
//! goes. Memory on the host is kept from one microbatch to the next, as with
//! `--cpu-offloading-retain-pinned-cpu-buffers`; without it a caching allocator waits for the last
//! copy before it hands a block out again (PyTorch, `CachingHostAllocatorImpl`).

use crate::fault::FaultKind;
use crate::model::gpt::{Gpt, Saved, input_of};
use crate::model::transformer_layer::LayerSaved;
use crate::numerics::Dtype;
use crate::world::{Handle, OFFLOAD_STREAM, Rank, Tensor};

/// How many of a stage's layers are offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offload {
    layers: u32,
    offloaded: u32,
    /// How many layers before its own backward a layer comes back.
    ahead: u32,
}

impl Offload {
    /// `None` where nothing is: then a microbatch's activations have memory of their own
    /// throughout.
    pub fn of(layers: u32, offloaded: u32, double_buffering: bool) -> Option<Offload> {
        assert!(offloaded < layers, "the last layer stays");
        let stay = layers - offloaded;
        let ahead = match double_buffering {
            true => (stay - 1).min(1),
            false => stay - 1,
        };
        (offloaded > 0).then_some(Offload {
            layers,
            offloaded,
            ahead,
        })
    }

    fn takes(self, layer: u32) -> bool {
        layer < self.offloaded
    }

    /// The layer that has left before the forward of `layer`.
    fn left_before(self, layer: u32) -> Option<u32> {
        layer.checked_sub(self.layers - self.offloaded)
    }

    /// The layer that comes back from the backward of `layer` on.
    fn returns_at(self, layer: u32) -> Option<u32> {
        let returning = layer.checked_sub(self.ahead)?;
        self.takes(returning).then_some(returning)
    }
}

/// Two buffers that layers come back into in turn.
pub(super) type ReloadBuffers = [Reloaded; 2];

/// Room for what a layer keeps for its backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reloaded {
    input: Tensor,
    kept: LayerSaved,
}

impl Reloaded {
    fn allocate(rank: &mut Rank, gpt: &Gpt, name: &str) -> Reloaded {
        Reloaded {
            input: gpt.alloc_hidden(rank, &format!("{name}.input")),
            kept: LayerSaved::allocate(rank, &gpt.stage, name, None, false),
        }
    }
}

/// Where a layer's activations wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnHost {
    /// Pinned.
    buffer: Tensor,
    /// The copies on their way, there or back, until they are waited for.
    copies: Option<Handle>,
}

/// A tensor that is copied, by name, and its place on the host.
type Copied = (&'static str, Tensor, Tensor);

impl Gpt {
    /// The host's memory for one microbatch in flight.
    pub(super) fn allocate_on_host(&self, rank: &mut Rank, place: u32) -> Vec<OnHost> {
        let Some(offload) = self.offload else {
            return Vec::new();
        };
        // The first layer's, only to see how long they are.
        let input = self.alloc_hidden(rank, &format!("saved{place}.input"));
        let name = format!("saved{place}.layer0");
        let layer = LayerSaved::allocate(rank, &self.stage, &name, None, false);
        let mut words = 0;
        for tensor in layer.activations().map(|(_, tensor)| tensor).chain([input]) {
            words += tensor.len;
            rank.free(tensor);
        }
        let layers = 0..offload.offloaded;
        let on_host = layers.map(|layer| OnHost {
            buffer: rank.alloc_host(&format!("offloaded{place}.layer{layer}"), Dtype::U32, words),
            copies: None,
        });
        on_host.collect()
    }

    /// Before the microbatch enters the first layer.
    pub(super) fn make_room_for_input(&self, rank: &mut Rank, saved: &mut Saved) {
        if self.offload.is_some() {
            let name = format!("saved{}.input", saved.place);
            saved.input = rank.module("embedding", |rank| self.alloc_hidden(rank, &name));
        }
    }

    /// Before the forward of `layer`: an earlier one has left, and this one gets memory.
    pub(super) fn make_room(&self, rank: &mut Rank, saved: &mut Saved, layer: u32) {
        let Some(offload) = self.offload else {
            return;
        };
        if let Some(left) = offload.left_before(layer) {
            self.finish_offload(rank, saved, left);
        }
        assert_eq!(saved.layers.len(), layer as usize, "layers come in order");
        let name = format!("saved{}.layer{layer}", saved.place);
        rank.module(self.module(layer), |rank| {
            let new = LayerSaved::allocate(rank, &self.stage, &name, None, true);
            saved.layers.push(new);
        });
    }

    /// Behind the forward of `layer`.
    pub(super) fn start_offload(&self, rank: &mut Rank, saved: &mut Saved, layer: u32) {
        if !self.offload.is_some_and(|offload| offload.takes(layer)) {
            return;
        }
        let copied = self.copied(saved, layer);
        let edge = format!("{}.offload", self.module(layer));
        let written = rank.edge(&edge, Rank::record_handle);
        let copies = rank.on_stream(OFFLOAD_STREAM, |rank| {
            rank.module(&edge, |rank| {
                rank.wait(written);
                for (name, on_device, on_host) in copied {
                    rank.copy(name, on_device, on_host);
                }
                rank.edge(&format!("{edge}.done"), Rank::record_handle)
            })
        });
        saved.on_host[layer as usize].copies = Some(copies);
    }

    /// The current stream goes on once `layer` has left, and its memory is given back.
    fn finish_offload(&self, rank: &mut Rank, saved: &mut Saved, layer: u32) {
        rank.module(&format!("{}.offload", self.module(layer)), |rank| {
            wait(rank, &mut saved.on_host[layer as usize]);
            for (_, tensor) in self.kept(saved, layer) {
                rank.free(tensor);
            }
        });
    }

    /// Before the backward of `layer`: another comes back from now on, and this one is there.
    pub(super) fn bring_back(&self, rank: &mut Rank, saved: &mut Saved, layer: u32) {
        let Some(offload) = self.offload else {
            return;
        };
        if let Some(returning) = offload.returns_at(layer) {
            self.start_reload(rank, saved, returning);
        }
        if offload.takes(layer) {
            rank.module(&format!("{}.reload", self.module(layer)), |rank| {
                wait(rank, &mut saved.on_host[layer as usize]);
            });
        }
    }

    /// New memory for what `layer` keeps, and the copies into it.
    fn start_reload(&self, rank: &mut Rank, saved: &mut Saved, layer: u32) {
        let edge = format!("{}.reload", self.module(layer));
        rank.module(&edge, |rank| {
            let Reloaded { input, kept } = self.room_for(rank, saved, layer);
            let mut new = kept;
            let old = &mut saved.layers[layer as usize];
            // The next layer's input, which came back with it.
            new.output = old.output;
            *old = new;
            set_input(saved, layer, input);
            let copied = self.copied(saved, layer);
            let given_back = rank.edge(&edge, Rank::record_handle);
            let copies = rank.on_stream(OFFLOAD_STREAM, |rank| {
                rank.wait(given_back);
                for (name, on_device, on_host) in copied {
                    rank.copy(name, on_host, on_device);
                }
                rank.edge(&format!("{edge}.done"), Rank::record_handle)
            });
            saved.on_host[layer as usize].copies = Some(copies);
        });
    }

    /// Where `layer` comes back to. With the fault the first buffer's turn never ends.
    fn room_for(&self, rank: &mut Rank, saved: &Saved, layer: u32) -> Reloaded {
        let Some(buffers) = &self.reload_buffers else {
            let name = format!("reloaded{}.layer{layer}", saved.place);
            return Reloaded::allocate(rank, self, &name);
        };
        let offload = self.offload.expect("layers are offloaded");
        let take_turns = offload.ahead > 0 && offload.offloaded > 1;
        let reset = take_turns && rank.has_fault(FaultKind::ResetIndex, "reload_buffer");
        buffers[if reset { 0 } else { layer as usize % 2 }]
    }

    /// With double buffering, where layers are offloaded.
    pub(super) fn allocate_reload_buffers(&mut self, rank: &mut Rank) {
        if self.offload.is_some() && self.stage.double_buffering {
            let names = ["reload_buffer0", "reload_buffer1"];
            self.reload_buffers = Some(names.map(|name| Reloaded::allocate(rank, self, name)));
        }
    }

    /// Behind the backward of `layer`, which nobody asks for its activations again.
    pub(super) fn give_back(&self, rank: &mut Rank, saved: &mut Saved, layer: u32) {
        let Some(offload) = self.offload else {
            return;
        };
        let mut kept = self.kept(saved, layer);
        if offload.takes(layer) && self.reload_buffers.is_some() {
            // Another layer's turn.
            kept.clear();
        }
        let own = saved.layers.pop().expect("it ran forward");
        rank.module(self.module(layer), |rank| {
            let is_last = layer as usize + 1 == self.layer_count();
            for tensor in kept.into_iter().map(|(_, tensor)| tensor) {
                rank.free(tensor);
            }
            if is_last {
                rank.free(own.output);
            }
        });
    }

    /// What `layer` keeps for its backward, by name: its input, and everything that its forward
    /// wrote but the output, which the next layer keeps.
    fn kept(&self, saved: &Saved, layer: u32) -> Vec<(&'static str, Tensor)> {
        let mut kept = vec![("input", input_of(saved, layer as usize))];
        kept.extend(saved.layers[layer as usize].activations());
        kept
    }

    fn copied(&self, saved: &Saved, layer: u32) -> Vec<Copied> {
        let buffer = saved.on_host[layer as usize].buffer;
        let mut start = 0;
        let mut copied = Vec::new();
        for (name, tensor) in self.kept(saved, layer) {
            let on_host = Tensor {
                dtype: tensor.dtype,
                ..buffer.slice(start, tensor.len)
            };
            copied.push((name, tensor, on_host));
            start += tensor.len;
        }
        assert_eq!(start, buffer.len, "the buffer is as long as they are");
        copied
    }
}

fn wait(rank: &mut Rank, on_host: &mut OnHost) {
    let copies = on_host.copies.take();
    rank.wait(copies.expect("they are on their way"));
}

fn set_input(saved: &mut Saved, layer: u32, input: Tensor) {
    match layer.checked_sub(1) {
        Some(before) => saved.layers[before as usize].output = input,
        None => saved.input = input,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which layers are on the device before each forward and in each backward, as the schedule
    /// says: never more than stay.
    #[test]
    fn as_many_layers_are_on_the_device_as_stay() {
        assert_eq!(Offload::of(3, 0, false), None);
        for layers in 2..7u32 {
            for (offloaded, double) in (1..layers).flat_map(|n| [(n, false), (n, true)]) {
                let offload = Offload::of(layers, offloaded, double).expect("some are");
                let mut here = vec![false; layers as usize];
                for layer in 0..layers {
                    if let Some(left) = offload.left_before(layer) {
                        assert!(std::mem::take(&mut here[left as usize]), "{left} is here");
                    }
                    here[layer as usize] = true;
                    let count = here.iter().filter(|is_here| **is_here).count() as u32;
                    assert!(
                        count <= layers - offloaded,
                        "{layers}, {offloaded}, {layer}"
                    );
                }
                let stay: Vec<bool> = (0..layers).map(|layer| !offload.takes(layer)).collect();
                assert_eq!(here, stay, "the first ones have left");
                for layer in (0..layers).rev() {
                    if let Some(returning) = offload.returns_at(layer) {
                        // The buffer that it shares is free by now.
                        assert!(!double || returning + 2 > layer);
                        assert!(!here[returning as usize], "{returning} had left");
                        here[returning as usize] = true;
                    }
                    assert!(here[layer as usize], "{layer} of {layers} is back in time");
                    let count = here.iter().filter(|is_here| **is_here).count() as u32;
                    assert!(
                        count <= layers - offloaded,
                        "{layers}, {offloaded}, {layer}"
                    );
                    here[layer as usize] = false;
                }
            }
        }
    }
}
