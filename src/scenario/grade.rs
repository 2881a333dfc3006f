//! Grades: what a check found, worst decides.

use serde::{Deserialize, Serialize};

/// The outcome of a check, from best to worst: the greatest of several decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Every choice point proved for all finite inputs, no hazard.
    Proved,
    /// Some point proved only on the inputs of this run.
    ProvedOnThisInput,
    /// Some point only sampled, or some region only searched.
    Bounded,
    /// Could not have failed, or a planted fault was not caught.
    Vacuous,
    /// Bits differ somewhere, and no deviation that was tried reached a declared output.
    Masked,
    /// An unordered conflicting access, or a read of memory that nothing wrote.
    Hazard,
    /// A witness is attached, or an oracle failed, or ranks disagree about a collective.
    Divergent,
    /// The same choices gave other bits: some variation is not modelled.
    Uncontrolled,
}

impl Grade {
    pub const ALL: [Grade; 8] = [
        Grade::Proved,
        Grade::ProvedOnThisInput,
        Grade::Bounded,
        Grade::Vacuous,
        Grade::Masked,
        Grade::Hazard,
        Grade::Divergent,
        Grade::Uncontrolled,
    ];

    /// The word of the command line, of scenario files and of JSON.
    pub const fn slug(self) -> &'static str {
        match self {
            Grade::Proved => "proved",
            Grade::ProvedOnThisInput => "proved-on-this-input",
            Grade::Bounded => "bounded",
            Grade::Vacuous => "vacuous",
            Grade::Masked => "masked",
            Grade::Hazard => "hazard",
            Grade::Divergent => "divergent",
            Grade::Uncontrolled => "uncontrolled",
        }
    }

    /// The words of reports.
    pub const fn words(self) -> &'static str {
        match self {
            Grade::ProvedOnThisInput => "proved on this input",
            Grade::Masked => "masked on the deviations tried",
            other => other.slug(),
        }
    }

    pub fn from_slug(slug: &str) -> Option<Grade> {
        Grade::ALL.into_iter().find(|grade| grade.slug() == slug)
    }

    pub(crate) fn slugs() -> [(&'static str, Grade); 8] {
        Grade::ALL.map(|grade| (grade.slug(), grade))
    }
}

impl std::fmt::Display for Grade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_ascend_from_best_to_worst_and_slugs_are_the_serialised_form() {
        assert!(Grade::ALL.is_sorted());
        for grade in Grade::ALL {
            assert_eq!(Grade::from_slug(grade.slug()), Some(grade));
            assert_eq!(
                serde_json::to_string(&grade).unwrap(),
                format!("\"{}\"", grade.slug())
            );
        }
        assert_eq!(Grade::from_slug("deterministic"), None);
    }
}
