//! The declared machine: written as TOML ([`schema`]), checked rule by rule ([`check`]), resolved into a [`Topology`],
//! scaled ([`scale`]), shown ([`show`]) and held against what a guest saw ([`compare`]). No I/O but in [`library`].

mod capture;
mod check;
mod compare;
mod costs;
mod draw;
mod library;
mod model;
mod rules;
mod scale;
mod schema;
mod show;

pub use capture::{CaptureError, capture};
pub use check::parse;
pub use compare::{Comparison, Finding, Row, compare};
pub use costs::{Cost, Costs};
pub use draw::draw;
pub use library::{load, names};
pub use model::{Arch, CacheDecl, CpuDecl, Level, MemoryPath, NodeDecl, Placement, Shape, Topology};
pub use rules::TopologyError;
pub use scale::{ScaleError, scale};
pub use show::show;
