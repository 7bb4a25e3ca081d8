//! QEMU: the typed options ([`options`]), the one place that spells them ([`argv`]), what this binary can do
//! ([`features`]), which accelerator works here ([`accel`]), a running process ([`process`]), and what makes its virtual clock
//! repeat ([`turnstile`]).

pub mod accel;
mod argv;
mod features;
mod options;
mod process;
mod turnstile;

pub use argv::{Accel, Machine, Share, argv, binary, paste, quote};
pub(crate) use features::on_path;
pub use features::{Qemu, find};
pub use process::{End, Launch, Running, start};
pub use turnstile::digest as turnstile_digest;
