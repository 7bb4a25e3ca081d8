//! What runs in a guest: its initramfs ([`initramfs`]), program trees from Debian packages ([`programs`]), and bundles
//! that say what to run and how to read it ([`bundle`]).

mod bundle;
mod initramfs;
mod programs;

pub use bundle::{Better, Bundle, MetricDecl, Param, Runs, bundle_names, load_bundle};
pub use initramfs::{Contents, agent_digest, module_places, write as write_initramfs};
pub use programs::{Image, provide as provide_image};
