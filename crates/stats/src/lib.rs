//! Pure functions on slices: confidence intervals, verdicts, variance components, what a study can tell before it is
//! made, the Universal Scalability Law, change points, steady state, stability.
//!
//! Never here: IO of any kind, clocks, randomness that was not passed in as a seed, names of metrics or servers.

mod anytime;
pub mod binomial;
mod bisect;
mod change;
pub mod climb;
pub mod compare;
mod components;
pub mod describe;
mod gate;
pub mod line;
mod load_law;
mod multiple;
mod plan;
mod replicate;
pub mod rng;
mod steady;
pub mod student;
pub mod usl;

pub use bisect::{Answer, Ask, BisectRules, BisectStatus, Guilty, GuiltySearch};
pub use change::{ChangePoint, ChangeRules, change_points, change_points_of_many};
pub use climb::ClimbPoint;
pub use compare::{
    AcrossNodes, BLOCKS_MAX, Better, Comparison, Design, Method, NodeRatio, Nodes, OddNode, Question, Ranked,
    Reason, Rules, Sample, Verdict, compare, compare_on, compare_one, rank, rank_on,
};
pub use components::{Components, variance_components};
pub use describe::{
    Stability, coefficient_of_variation, geometric_mean, mean, median, quantile, quantile_needs, stability,
};
pub use gate::{Gate, Wanted};
pub use load_law::{LittleCheck, little};
pub use multiple::{benjamini_hochberg, holm};
pub use plan::{BlockCosts, Layout, best_layout, difference_told};
pub use replicate::{RatioSpan, Replication, replicated};
pub use steady::{Steadiness, SteadyRules, SteadyState, steadiness};
pub use usl::{UslError, UslFit, UslPoint, Weighting, fit_usl};
