//! Where two plans of one operation part.

use std::ops::Range;

use crate::plan::Plan;

impl Plan {
    /// The ranges of elements whose bits may differ between the two plans: ascending, not touching.
    /// Empty exactly where `same_bits` holds.
    ///
    /// Panics where the plans have different element counts: those have no elements to compare.
    pub fn differing_ranges(&self, other: &Plan) -> Vec<Range<u64>> {
        assert_eq!(
            self.element_count, other.element_count,
            "plans of one operation"
        );
        if !self.same_rules(other) {
            let all = 0..self.element_count;
            return if all.is_empty() {
                Vec::new()
            } else {
                vec![all]
            };
        }
        let (mine, theirs) = (self.classes(), other.classes());
        let (mut a, mut b) = (mine.iter().peekable(), theirs.iter().peekable());
        let mut differing: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while let (Some((mine, x)), Some((theirs, y))) = (a.peek(), b.peek()) {
            let end = mine.end.min(theirs.end);
            let (mine_ends, theirs_ends) = (mine.end == end, theirs.end == end);
            if x != y {
                match differing.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ => differing.push(at..end),
                }
            }
            a.next_if(|_| mine_ends);
            b.next_if(|_| theirs_ends);
            at = end;
        }
        differing
    }

    /// The first element whose bits may differ. `None` where no element's can.
    pub fn first_difference(&self, other: &Plan) -> Option<u64> {
        self.differing_ranges(other)
            .first()
            .map(|range| range.start)
    }
}
