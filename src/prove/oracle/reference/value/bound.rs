//! How far two computations of one tensor may be apart.

use crate::model::ModelShape;
use crate::numerics::Dtype;
use crate::train::TrainOptions;

/// Standard deviations of a rounding error that are allowed: `l` of the module's bound.
pub(super) const DEVIATIONS: f64 = 16.0;

/// Values of a row or a column from which their mean square is believed.
const SAMPLES: usize = 8;

/// The size of rounding errors, element by element: `sqrt(R_r C_c / A)` of the mean squares of row,
/// column and all, the rank-one model of a table whose rows and columns have sizes of their own
/// (a gradient is a sum of outer products).
///
/// A mean square of few values may be small by luck. So each row and column counts one more value
/// with the mean square of all, and the size is taken `1 + 64 / n^2` times for `n` values, which
/// exceeds the quantiles of Student's t (at a level of `1e-8` and 16 deviations) down to `n = 8`.
///
/// An element that a few large terms make has errors beyond those of its row and column, in either
/// precision: its own error counts where it is the larger one.
///
/// To first order errors are linear in the roundings; the term behind it has the size of the error
/// again, relative to the value: `1 + l e` times for a relative error `e`, `l` deviations away.
pub(super) struct Scales {
    errors: Vec<f64>,
    rows: Vec<f64>,
    columns: Vec<f64>,
    all: f64,
    /// What is added for few values, and for the second order.
    factor: f64,
    /// The size of the errors by that of the values.
    relative: f64,
}

impl Scales {
    /// Of the errors of these values.
    pub fn of(errors: &[f64], values: &[f32], columns: usize) -> Scales {
        assert_eq!(errors.len(), values.len());
        let squares: Vec<f64> = errors.iter().map(|error| error * error).collect();
        let all = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
        let value = |value: &f32| f64::from(*value) * f64::from(*value);
        let of_values = values.iter().map(value).sum::<f64>() / values.len().max(1) as f64;
        let relative = match of_values > 0.0 {
            true => (all / of_values).sqrt(),
            false => 0.0,
        };
        let rows = squares.len() / columns.max(1);
        let by_row = |row: usize| {
            let of_row = &squares[row * columns..(row + 1) * columns];
            (of_row.iter().sum::<f64>() + all) / (columns + 1) as f64
        };
        let by_column = |column: usize| {
            let of_column = squares.iter().skip(column).step_by(columns);
            (of_column.sum::<f64>() + all) / (rows + 1) as f64
        };
        let (has_rows, has_columns) = (columns >= SAMPLES, rows >= SAMPLES);
        let samples = match (has_rows && rows > 1, has_columns && columns > 1) {
            (true, true) => rows.min(columns),
            (true, false) => columns,
            (false, true) => rows,
            (false, false) => squares.len(),
        };
        Scales {
            errors: errors.to_vec(),
            rows: match has_rows {
                true => (0..rows).map(by_row).collect(),
                false => vec![all; rows],
            },
            columns: match has_columns {
                true => (0..columns).map(by_column).collect(),
                false => vec![all; columns],
            },
            all,
            factor: (1.0 + 64.0 / (samples.max(1) as f64 * samples.max(1) as f64))
                * (1.0 + DEVIATIONS * relative),
            relative,
        }
    }

    /// The size of the errors by that of the values.
    pub fn relative(&self) -> f64 {
        self.relative
    }

    pub fn at(&self, element: usize) -> f64 {
        if self.all == 0.0 {
            return 0.0;
        }
        let columns = self.columns.len();
        let (row, column) = (element / columns, element % columns);
        let modelled = (self.rows[row] * self.columns[column] / self.all).sqrt();
        self.factor * modelled.max(self.errors[element])
    }
}

/// The unit roundoff of a type: half the distance from 1 to the next number.
pub(super) fn unit_roundoff(dtype: Dtype) -> f64 {
    1.0 / (1u64 << dtype.precision_bits()) as f64
}

/// Higham's gamma_n = n u / (1 - n u): the relative error of n roundings (Accuracy and Stability of
/// Numerical Algorithms, 2nd edition, lemma 3.1). Infinite where that says nothing.
pub(super) fn gamma(roundings: f64, unit: f64) -> f64 {
    let product = roundings * unit;
    match product < 1.0 {
        true => product / (1.0 - product),
        false => f64::INFINITY,
    }
}

/// What is allowed in one step of a recipe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Of the size of a rounding error.
    rounding: f64,
    /// Of the sum of magnitudes that are reduced.
    reduction: f64,
    /// Of the norm, and of the coefficient that follows from it.
    norm: f64,
}

impl Allowed {
    /// For a model of so many words.
    pub fn of(options: &TrainOptions, words: u64) -> Allowed {
        let (layout, model) = (&options.layout, &options.model);
        let [single, half] = [Dtype::F32, Dtype::Bf16].map(unit_roundoff);
        let tensor = f64::from(layout.tensor_model_parallel_size);
        let data = f64::from(layout.data_parallel_size);
        let microbatches = f64::from(options.microbatches());
        let precision = match model.params_dtype {
            Dtype::Bf16 => 1.0,
            _ => single / half * f64::from(longest_sum(model)),
        };
        // Additions here, in the serial run, over tensor-parallel ranks, and a few factors.
        let additions = microbatches * data + microbatches + data + tensor + 4.0;
        let in_half = match options.reduce_dtype {
            Dtype::F32 => 0.0,
            narrow => gamma(data + tensor + 1.0, unit_roundoff(narrow)),
        };
        // What a microbatch adds has gone through such a partial sum or hop at least once, though
        // no error was seen in the sample.
        let unseen = gamma(1.0 + tensor, unit_roundoff(model.params_dtype));
        // The longest of the sums behind a norm: 64 lanes of the words, the lanes, the ranks.
        // Padding is less than the words.
        let depth = 2.0 * words as f64 / 64.0 + 64.0 + f64::from(layout.world_size()) + 4.0;
        Allowed {
            rounding: DEVIATIONS * (2.0 + tensor).sqrt() * precision,
            reduction: gamma(additions, single) + in_half + unseen,
            // The root halves what both sums may be off; then a root, a sum, a quotient each.
            norm: gamma(depth, single) + gamma(8.0, single),
        }
    }

    /// Of an element whose rounding errors have this size.
    pub fn rounding(self, size: f64) -> f64 {
        self.rounding * size
    }

    /// Of an element that is a sum of terms with this sum of magnitudes.
    pub fn reduction(self, magnitude: f64) -> f64 {
        self.reduction * magnitude
    }

    pub fn norm(self) -> f64 {
        self.norm
    }
}

/// The most products or tokens that one number of a step sums up.
fn longest_sum(model: &ModelShape) -> u32 {
    let sums = [
        model.hidden_size,
        model.ffn_hidden_size,
        model.padded_vocab_size,
        model.num_attention_heads * model.kv_channels,
        model.tokens(),
    ];
    sums.into_iter().max().unwrap_or(1)
}

/// A difference by what is allowed of it.
pub(super) fn ratio(difference: f64, bound: f64) -> f64 {
    match difference {
        0.0 => 0.0,
        f64::INFINITY => f64::INFINITY,
        _ => difference / bound,
    }
}
