//! Bundles: programs or models, their parameters, where they run and how their numbers are read, declared in `bundle.toml`
//! ([`schema`]), checked line by line ([`check`]) and resolved for a machine ([`place`]). Outputs become numbers in [`read`].
//! No I/O but in [`library`].

mod check;
mod library;
mod model;
mod place;
mod read;
mod schema;
mod sum;

pub use library::{bundle_names, load_bundle};
pub use model::{
    Better, Bundle, Choice, From, Kind, MetricDecl, Model, Over, Param, Place, Program, Promise, Reading, Runs,
    ServiceDecl, Starts, StepDecl, Supply,
};
pub use place::{Ordered, Resolved, resolve};
pub use read::{Outputs, Unread, read};
