//! The script that pseries' firmware runs before it hands its device tree to the kernel: L2 and L3 caches, and the thread groups
//! that make a big POWER core two small ones. SLOF executes `nvramrc` when `use-nvramrc?` is true (SLOF, slof/fs/envvar.fs).
//!
//! The variable holds about 1,000 bytes, so the script is a loop over cores, of constant length.

use crate::topology::{CacheDecl, Level, Topology};
use topolab_wire::CacheKind;

/// The script for a machine, or none where nothing is to be added.
pub(super) fn script(topology: &Topology) -> Option<String> {
    let cache = |level: u32| topology.caches.iter().find(|c| c.level == level && c.kind == CacheKind::Unified);
    let s = topology.shape;
    let cores = s.packages * s.dies * s.modules * s.cores;
    let grouped = s.thread_groups > 1;
    // A cache hangs on the level inside it, so an L3 without an L2 has no place.
    let caches = cache(2).map(|l2| (l2, cache(3)));
    if !grouped && caches.is_none() {
        return None;
    }
    let mut words = vec!["hex : e+ encode-int encode+ ;".to_string()];
    // ( reg size -- ) begins a cache's node (Power Architecture Platform Requirements, "L2 Cache Node").
    if caches.is_some() {
        words.push(
            concat!(
                r#": mk new-device encode-int " d-cache-size" property 80 encode-int " d-cache-line-size" property "#,
                r#"80 encode-int " d-cache-block-size" property encode-int " reg" property " cache" encode-string "#,
                r#"" device_type" property 0 0 " cache-unified" property ;"#
            )
            .to_string(),
        );
    }
    if grouped {
        words.push(thread_groups(s.threads, s.thread_groups));
    }
    let mut body = String::new();
    if let Some((l2, l3)) = caches {
        words.push("variable a variable b".into());
        body.push_str(r#"" /cpus" find-device "#);
        if let Some(l3) = l3 {
            body.push_str(&node(topology, l3, 3, "b", ""));
        }
        let above = if l3.is_some() { r#"b @ encode-int " l2-cache" property "# } else { "" };
        body.push_str(&node(topology, l2, 2, "a", above));
        body.push_str("device-end ");
    }
    // A core's node is named by its first thread.
    body.push_str(&format!(r#"i {:x} * (u.) " /cpus/PowerPC,POWER10@" 2swap $cat find-device "#, s.threads));
    if caches.is_some() {
        body.push_str(r#"a @ encode-int " l2-cache" property "#);
    }
    if grouped {
        body.push_str(&format!("i {:x} * tg ", s.threads));
    }
    body.push_str("device-end");
    words.push(format!(": go {cores:x} 0 do {body} loop ; go"));
    Some(words.join(" "))
}

/// Makes a cache's node at the first of the cores that share it, and keeps its handle in a variable.
fn node(topology: &Topology, cache: &CacheDecl, level: u32, variable: &str, inside: &str) -> String {
    let cores = match cache.shared_by {
        // Groups within a core share one node; the property of groups tells them apart.
        Level::Thread | Level::Group | Level::Core => 1,
        unit @ (Level::Module | Level::Node | Level::Die | Level::Package) => {
            topology.shape.cpus_per(unit) / topology.shape.threads
        }
    };
    let make = format!(
        r#"i {level}000 + {:x} mk " l{level}-cache" device-name {inside}get-node {variable} ! finish-device "#,
        cache.size_kib << 10
    );
    match cores {
        1 => make,
        n => format!("i {n:x} mod 0= if {make}then "),
    }
}

/// `ibm,thread-groups`: what is shared (1: L1 and translation; 2: L2 and L3), how many groups, threads in each, and the threads
/// (arch/powerpc/kernel/smp.c, `parse_thread_groups`).
fn thread_groups(threads: u32, groups: u32) -> String {
    let each = threads / groups;
    format!(
        concat!(
            ": x swap >r encode-int encode+ r> ; ",
            ": gg {groups:x} 0 do {each:x} 0 do dup j + i {groups:x} * + x loop loop ; ",
            ": tg >r 1 encode-int {groups:x} e+ {each:x} e+ r> gg >r 2 e+ {groups:x} e+ {each:x} e+ r> gg drop ",
            r#"" ibm,thread-groups" property ;"#
        ),
        groups = groups,
        each = each,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::load;

    #[test]
    fn the_script_is_short_whatever_the_machine() {
        for name in ["power10", "power10-2s", "smoke"] {
            let script = script(&load(name).expect("built in")).expect("caches");
            assert!(script.len() < 1000, "{name}: {} bytes", script.len());
            // Colons and semicolons of definitions pair up, and so do quotes.
            let count = |word: &str| script.split(' ').filter(|w| *w == word).count();
            assert_eq!(count(":"), count(";"), "{script}");
        }
    }
}
