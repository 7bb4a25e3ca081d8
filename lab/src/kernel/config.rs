//! The lean configuration: `make tinyconfig` and fragments, every symbol of which must survive.

use crate::fault::{Fault, FaultKind, Outcome};
use crate::topology::Arch;
use std::collections::BTreeMap;
use std::path::Path;

const BASE: &str = include_str!("../../kconfig/base.config");
const X86_64: &str = include_str!("../../kconfig/x86_64.config");
const MANY_CPUS: &str = include_str!("../../kconfig/many-cpus.config");

/// A named piece of configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) name: String,
    pub(super) text: String,
}

/// The fragments that a kernel needs, in the order in which later ones win.
pub(super) fn fragments(wish: &super::Wish) -> Outcome<Vec<Fragment>> {
    let built_in = |name: &str, text: &str| Fragment { name: name.into(), text: text.into() };
    let mut all = vec![built_in("base.config", BASE)];
    match wish.arch {
        Arch::X86_64 => all.push(built_in("x86_64.config", X86_64)),
        Arch::Aarch64 | Arch::Ppc64le => {
            return Err(Fault::input(format!("kernels for {} cannot be built by this version of topolab", wish.arch)));
        }
    }
    if wish.needs.many_cpus {
        all.push(built_in("many-cpus.config", MANY_CPUS));
    }
    for (bundle, lines) in &wish.bundles {
        // What the other fragments have already makes no kernel of its own.
        let known = wishes(&all)?;
        let asked = Fragment { name: format!("bundle {bundle}"), text: lines.join("\n") };
        if wishes(std::slice::from_ref(&asked))?
            .iter()
            .any(|(symbol, w)| known.get(symbol).map(|k| &k.value) != Some(&w.value))
        {
            all.push(asked);
        }
    }
    for path in &wish.fragments {
        let text =
            std::fs::read_to_string(path).map_err(|e| Fault::input(format!("--config {}: {e}", path.display())))?;
        let fragment = Fragment { name: path.display().to_string(), text };
        wishes(std::slice::from_ref(&fragment))?;
        all.push(fragment);
    }
    Ok(all)
}

/// What names a configuration: the fragments' texts, in order.
pub(super) fn digest(fragments: &[Fragment]) -> String {
    crate::digest::hex(&fragments.iter().map(|fragment| fragment.text.as_bytes()).collect::<Vec<_>>())
}

/// What a symbol shall be, and which fragment says so.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    value: String,
    fragment: String,
}

/// Every symbol that the fragments name, the last word on each.
fn wishes(fragments: &[Fragment]) -> Outcome<BTreeMap<String, Asked>> {
    let mut all = BTreeMap::new();
    for fragment in fragments {
        for (number, line) in fragment.text.lines().enumerate() {
            let off = line.strip_prefix("# CONFIG_").and_then(|rest| rest.strip_suffix(" is not set"));
            let (symbol, value) = match (off, line.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('='))) {
                (Some(symbol), _) => (symbol, "n"),
                (None, Some((symbol, value))) => (symbol, value.trim_end()),
                (None, None) if line.trim().is_empty() || line.starts_with('#') => continue,
                (None, None) => {
                    let place = format!("{}:{}", fragment.name, number + 1);
                    return Err(Fault::input(format!(
                        "{place}: `{line}` is neither CONFIG_X=… nor `# CONFIG_X is not set`"
                    )));
                }
            };
            all.insert(symbol.to_string(), Asked { value: value.to_string(), fragment: fragment.name.clone() });
        }
    }
    Ok(all)
}

/// Compares what was asked with what kconfig made of it.
pub(super) fn verify(fragments: &[Fragment], final_config: &str, tree: &Path) -> Outcome<()> {
    let finals: BTreeMap<&str, &str> =
        final_config.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('=')).collect();
    let mut lost = Vec::new();
    for (symbol, wish) in wishes(fragments)? {
        let got = finals.get(symbol.as_str()).copied().unwrap_or("n");
        if got != wish.value {
            let why = depends_on(tree, &symbol).unwrap_or_else(|| "no such symbol in this kernel".into());
            lost.push(format!("CONFIG_{symbol}={} ({}) became {got}: {why}", wish.value, wish.fragment));
        }
    }
    match lost.is_empty() {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::Build, "kconfig dropped symbols that were asked for")
            .detail(lost.join("\n"))
            .help("ask for what they depend on as well, in a fragment given with --config")),
    }
}

/// The dependency lines of a symbol's entry, as far as a reader of the Kconfig files would see them.
fn depends_on(tree: &Path, symbol: &str) -> Option<String> {
    let heads = [format!("config {symbol}"), format!("menuconfig {symbol}")];
    let is_kconfig = |entry: &walkdir::DirEntry| entry.file_name().to_string_lossy().starts_with("Kconfig");
    // Other architectures' entries have the same names.
    let relevant = |entry: &walkdir::DirEntry| {
        let path = entry.path().strip_prefix(tree).unwrap_or(entry.path());
        !path.starts_with("arch")
            || path.starts_with("arch/x86")
            || path == Path::new("arch")
            || path == Path::new("arch/Kconfig")
    };
    let walk = walkdir::WalkDir::new(tree).into_iter().filter_entry(relevant).flatten().filter(is_kconfig);
    for entry in walk {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let mut lines = text.lines().skip_while(|line| !heads.iter().any(|head| line.trim_end() == head));
        if lines.next().is_none() {
            continue;
        }
        let body = lines.take_while(|line| line.is_empty() || line.starts_with(char::is_whitespace));
        let needs: Vec<&str> =
            body.map(str::trim).filter(|line| line.starts_with("depends on") || line.starts_with("select")).collect();
        let depends: Vec<&str> = needs.into_iter().filter(|line| line.starts_with("depends on")).collect();
        let place = entry.path().strip_prefix(tree).unwrap_or(entry.path()).display().to_string();
        return Some(match depends.is_empty() {
            true => {
                format!("{place} names no dependency; the enclosing menu, or another symbol that selects it, decides")
            }
            false => format!("{place}: {}", depends.join("; ")),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(text: &str) -> Vec<Fragment> {
        vec![Fragment { name: "mine.config".into(), text: text.into() }]
    }

    #[test]
    fn a_dropped_symbol_names_its_fragment_and_dependency() {
        let tree = tempfile::tempdir().expect("a folder");
        std::fs::write(
            tree.path().join("Kconfig"),
            "config GOOD\n\tbool\n\nconfig LOST\n\tbool \"x\"\n\tdepends on RAREBUS && GOOD\n",
        )
        .expect("Kconfig");
        let asked = fragment("CONFIG_GOOD=y\nCONFIG_LOST=y\n# CONFIG_OFF is not set\n");
        let fault = verify(&asked, "CONFIG_GOOD=y\n", tree.path()).expect_err("LOST was dropped");
        assert_eq!(fault.kind, FaultKind::Build);
        assert_eq!(
            fault.detail.as_deref(),
            Some("CONFIG_LOST=y (mine.config) became n: Kconfig: depends on RAREBUS && GOOD")
        );
        assert!(verify(&asked, "CONFIG_GOOD=y\nCONFIG_LOST=y\n", tree.path()).is_ok());
        assert!(verify(&asked, "CONFIG_GOOD=y\nCONFIG_LOST=y\nCONFIG_OFF=y\n", tree.path()).is_err());
    }

    #[test]
    fn the_last_fragment_wins_and_nonsense_has_a_place() {
        let both = [fragment("CONFIG_A=y\n"), fragment("# CONFIG_A is not set\n")].concat();
        assert_eq!(wishes(&both).expect("two fragments")["A"].value, "n");
        let fault = wishes(&fragment("CONFIG_A=y\nCONFIG A\n")).expect_err("nonsense");
        assert!(fault.message.starts_with("mine.config:2:"), "{fault}");
    }
}
