//! What a guest boots into: its initramfs ([`initramfs`]), and program trees from Debian packages ([`provide`]) after recipes
//! ([`recipe`]), with what the user supplies ([`supply`]).

mod collect;
mod initramfs;
mod provide;
mod recipe;
mod supply;
mod tree;

pub use initramfs::{Contents, agent_digest, module_places, write as write_initramfs};
pub use provide::{Image, ImageWish, provide as provide_image};
pub use recipe::{Recipe, image_names, load_recipe};
pub use supply::Supplied;
