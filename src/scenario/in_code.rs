//! Scenarios made in a program rather than in a file.

use std::path::Path;

use serde::Serialize;

use super::{AllocationFile, Data, Free, Overrides, Scenario, allocation};
use crate::diagnostic::{Diagnostic, InvalidInput, Source};
use crate::recipe::Recipe;

impl Scenario {
    /// The scenario around a bare recipe: all its steps on hosts of eight GPUs in rank order, run
    /// to run, after restarts and across replicas. Fields may be changed; a check asks again
    /// whether they go together.
    ///
    /// # Errors
    /// The recipe's broken rules.
    pub fn of(recipe: Recipe) -> Result<Scenario, InvalidInput> {
        let recipe = recipe.validated()?;
        let text = toml::to_string(&recipe).expect("plain data has a TOML form");
        Scenario::from_toml(&text)
    }

    /// A scenario from a text in the form of a scenario file, or of a recipe file. Paths in it are
    /// relative to the working directory.
    ///
    /// # Errors
    /// Everything that is wrong with the text or with the files it names.
    pub fn from_toml(text: &str) -> Result<Scenario, InvalidInput> {
        let source = Source::new("<scenario>", text);
        let path = Path::new("scenario.toml");
        let loaded = Scenario::from_source(&source, path, &Overrides::default())?;
        Ok(loaded.scenario)
    }

    /// The same job on one of these allocations, each a text in the form of an allocation file.
    /// One is where the job runs; two or more make the placement free, and a check then compares
    /// them.
    ///
    /// # Errors
    /// A text that is no allocation, none at all, two of one name, or one of another world size.
    pub fn on_any_of<'a>(
        mut self,
        allocations: impl IntoIterator<Item = &'a str>,
    ) -> Result<Scenario, InvalidInput> {
        self.allocations = allocations
            .into_iter()
            .map(AllocationFile::from_toml)
            .collect::<Result<_, _>>()?;
        if self.allocations.is_empty() {
            let message = "a job needs an allocation to run on";
            return Err(Diagnostic::error("no-allocation", message).into());
        }
        match self.allocations.len() {
            1 => self.free.remove(&Free::Placement),
            _ => self.free.insert(Free::Placement),
        };
        self.validate()?;
        Ok(self)
    }

    /// Whether the fields still go together, after a program has changed them.
    ///
    /// # Errors
    /// The rules that are broken, in the text that the scenario would have in a file.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        self.recipe.clone().validated()?;
        // A long text needs no second look: what it must be long enough for is asked when it is
        // read.
        let own = Scenario {
            data: Data::BuiltIn,
            ..self.clone()
        };
        Scenario::from_toml(&own.to_toml(Path::new("."))).map(|_| ())
    }
}

impl AllocationFile {
    /// An allocation from a text: a `name`, and `hosts`, the ranks on each.
    ///
    /// # Errors
    /// What is wrong with the text, with line and caret.
    pub fn from_toml(text: &str) -> Result<AllocationFile, InvalidInput> {
        allocation::of_source(Source::new("<allocation>", text))
            .map_err(|finding| InvalidInput::from(*finding))
    }

    /// Consecutive ranks on each of some hosts: the sizes of `hosts` add up to the world.
    ///
    /// # Errors
    /// No rank at all, or an empty host.
    pub fn block(name: &str, hosts: &[u32]) -> Result<AllocationFile, InvalidInput> {
        #[derive(Serialize)]
        struct Block<'a> {
            name: &'a str,
            hosts: Vec<Vec<u32>>,
        }
        let mut next = 0u32;
        let mut ranks = |count: u32| {
            let first = next;
            next = next.saturating_add(count.min(crate::topology::MAX_RANKS));
            (first..next).collect()
        };
        let hosts = hosts.iter().map(|count| ranks(*count)).collect();
        let text = toml::to_string(&Block { name, hosts });
        AllocationFile::from_toml(&text.expect("plain data has a TOML form"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Recipe {
        Recipe {
            world_size: 4,
            global_batch_size: 4,
            ..Recipe::small()
        }
    }

    const TOGETHER: &str = "name = \"together\"\nhosts = [[0, 1, 2, 3]]";
    const APART: &str = "name = \"apart\"\nhosts = [[0, 1], [2, 3]]";

    #[test]
    fn a_recipe_becomes_the_scenario_that_its_file_would() {
        let scenario = Scenario::of(four()).unwrap();
        assert_eq!(scenario.recipe, four());
        assert!(scenario.allocations.is_empty() && scenario.free.is_empty());
        assert_eq!(scenario.oracles.len(), 4);
        assert!(
            Scenario::of(Recipe {
                world_size: 0,
                ..four()
            })
            .is_err()
        );
    }

    #[test]
    fn two_allocations_free_the_placement() {
        let one = Scenario::of(four()).unwrap().on_any_of([TOGETHER]).unwrap();
        assert!(one.free.is_empty());
        let two = Scenario::of(four()).unwrap().on_any_of([TOGETHER, APART]);
        let two = two.unwrap();
        assert!(two.free.contains(&Free::Placement));
        let code = |given: &[&str]| {
            let refused = one.clone().on_any_of(given.iter().copied()).unwrap_err();
            refused.diagnostics()[0].code
        };
        assert_eq!(code(&[]), "no-allocation");
        assert_eq!(code(&[TOGETHER, TOGETHER]), "same-name");
        assert_eq!(
            code(&["name = \"short\"\nhosts = [[0, 1]]"]),
            "another-world"
        );
        assert_eq!(code(&["hosts = ["]), "allocation");
    }

    #[test]
    fn blocks_of_ranks_are_allocations() {
        let apart = AllocationFile::block("apart", &[2, 2]).unwrap();
        let read = AllocationFile::from_toml(APART).unwrap();
        assert_eq!(apart.allocation, read.allocation);
        assert!(AllocationFile::block("none", &[]).is_err());
        assert!(AllocationFile::block("hole", &[2, 0, 2]).is_err());
        assert!(AllocationFile::block("huge", &[u32::MAX, u32::MAX]).is_err());
    }

    #[test]
    fn a_scenario_changed_beyond_its_rules_is_refused() {
        let sound = Scenario::of(four()).unwrap();
        assert!(sound.validate().is_ok());
        let broken: [fn(&mut Scenario); 4] = [
            |scenario| scenario.steps = 0,
            |scenario| scenario.recipe.num_layers = 0,
            |scenario| scenario.checkpoint.restarts = vec![vec![7]],
            |scenario| {
                scenario.free.insert(Free::Placement);
            },
        ];
        for change in broken {
            let mut scenario = sound.clone();
            change(&mut scenario);
            assert!(scenario.validate().is_err());
        }
    }
}
