//! From records to a page: one summary ([`summary`]), printed as text or markdown ([`table`]) or as JSON ([`json`]). Pure.

mod json;
mod mechanism;
mod summary;
mod sweep;
mod table;

pub use json::json;
pub use mechanism::MechanismRow;
pub use summary::{MetricRow, Section, Side, Summary, summarise};
pub use sweep::{Point, sweep_json, sweep_text};
pub use table::{markdown, text};
