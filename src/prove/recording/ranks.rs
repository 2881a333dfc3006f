//! Where a rank's stream has come to.

use std::collections::BTreeMap;

use crate::world::Site;

/// What a rank's records are numbered by.
#[derive(Debug, Default)]
pub(super) struct RankCourse {
    iteration: u32,
    /// How often a place was recorded in this iteration.
    seen: BTreeMap<String, u64>,
}

impl RankCourse {
    /// The iteration that a record of `step` stands in. What is still done for an earlier step, as
    /// a background writer does it, stands where it is done: iterations go on in a stream.
    pub fn go_to(&mut self, step: u32) -> u32 {
        if step > self.iteration {
            self.iteration = step;
            self.seen.clear();
        }
        self.iteration
    }

    /// What the next record of a place is known by in its iteration.
    pub fn id(&mut self, site: &Site) -> String {
        let mut id = place_of(site);
        let number = match self.seen.get_mut(&id) {
            Some(count) => {
                *count += 1;
                *count - 1
            }
            None => {
                self.seen.insert(id.clone(), 1);
                0
            }
        };
        id += &format!(":{number}");
        id
    }
}

/// What records call a place.
pub(in crate::prove) fn place_of(site: &Site) -> String {
    let mut place = format!("{}/{}", site.phase.name(), site.node());
    if let Some(microbatch) = site.microbatch {
        place += &format!("@{microbatch}");
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{Name, Phase};

    fn site(step: u32, microbatch: Option<u32>, op: &str) -> Site {
        Site {
            step,
            microbatch,
            phase: Phase::Forward,
            module: Name::from("decoder"),
            op: Name::from(op),
        }
    }

    #[test]
    fn ids_count_within_an_iteration_and_iterations_go_on() {
        let mut course = RankCourse::default();
        assert_eq!(course.go_to(1), 1);
        let one = site(1, Some(2), "matmul");
        assert_eq!(course.id(&one), "forward/decoder.matmul@2:0");
        assert_eq!(course.id(&one), "forward/decoder.matmul@2:1");
        assert_eq!(
            course.id(&site(1, None, "matmul")),
            "forward/decoder.matmul:0"
        );
        assert_eq!(course.go_to(2), 2);
        assert_eq!(course.id(&one), "forward/decoder.matmul@2:0");
        // What is late stands where it is done, and is known there by a name of its own.
        assert_eq!(course.go_to(1), 2);
        assert_eq!(course.id(&one), "forward/decoder.matmul@2:1");
    }
}
