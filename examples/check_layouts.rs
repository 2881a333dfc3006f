//! Which of my layouts keeps its bits? Checks one small recipe under several tensor- and
//! data-parallel sizes, with one order free, and prints a line for each.
//!
//! `cargo run --release --example check_layouts`

use bitproof::{CheckOptions, Error, LocalOrder, OracleKind, Recipe, Scenario};

fn main() -> Result<(), Error> {
    for (tensor, data) in [(1, 2), (1, 4), (2, 2), (2, 4)] {
        let mut recipe = Recipe {
            tensor_model_parallel_size: tensor,
            world_size: tensor * data,
            // Three microbatches on each data-parallel rank.
            global_batch_size: 3 * data,
            ..Recipe::small()
        };
        recipe.determinism.microbatch_accumulation = LocalOrder::Arrival;
        let mut scenario = Scenario::of(recipe)?;
        scenario.oracles = [OracleKind::R2R].into();
        let outcome = bitproof::check(&scenario, CheckOptions::default())?;
        let first = outcome.first_divergence.as_ref();
        let first = first.map_or("nothing parts".to_string(), |first| first.site.to_string());
        println!("TP {tensor} DP {data}: {}; {first}", outcome.grade());
    }
    Ok(())
}
