//! Patches as they arrive: mails, threads, folders and quoted replies become a [`Series`] in order, and everything odd about
//! them is said. Reading files is [`read`]'s; the rest is pure: mails ([`mail`]), subjects ([`subject`]), threads ([`thread`]),
//! diffs ([`diff`]), damage and its repair ([`damage`]).

mod damage;
mod diff;
mod mail;
mod read;
mod series;
mod subject;
mod thread;

pub use read::{Intake, Source, read};
pub use series::{Patch, Series};
