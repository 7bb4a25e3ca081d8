//! The lean configuration: `make tinyconfig` and fragments, every symbol of which must survive.

use crate::fault::{Fault, FaultKind, Outcome};
use crate::topology::Arch;
use std::collections::BTreeMap;
use std::path::Path;

const BASE: &str = include_str!("../../kconfig/base.config");
const X86_64: &str = include_str!("../../kconfig/x86_64.config");
const AARCH64: &str = include_str!("../../kconfig/aarch64.config");
const PPC64LE: &str = include_str!("../../kconfig/ppc64le.config");
const MANY_CPUS: &str = include_str!("../../kconfig/many-cpus.config");
/// Debugging aids by the name that `--config` takes.
pub const AIDS: &[(&str, &str)] =
    &[("lockdep", include_str!("../../kconfig/lockdep.config")), ("kasan", include_str!("../../kconfig/kasan.config"))];

/// A named piece of configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) name: String,
    pub(super) text: String,
    /// The lab's own wishes hold for kernels of many years: those of a symbol that a kernel does not know are no wish.
    pub(super) built_in: bool,
}

/// The fragments that a kernel needs, in the order in which later ones win.
pub(super) fn fragments(wish: &super::Wish) -> Outcome<Vec<Fragment>> {
    let built_in = |name: &str, text: &str| Fragment { name: name.into(), text: text.into(), built_in: true };
    let mut all = vec![built_in("base.config", BASE)];
    match wish.arch {
        Arch::X86_64 => all.push(built_in("x86_64.config", X86_64)),
        Arch::Aarch64 => all.push(built_in("aarch64.config", AARCH64)),
        Arch::Ppc64le => all.push(built_in("ppc64le.config", PPC64LE)),
    }
    // Only x86 needs anything for more than 255 CPUs.
    if wish.needs.many_cpus && wish.arch == Arch::X86_64 {
        all.push(built_in("many-cpus.config", MANY_CPUS));
    }
    for (bundle, lines) in &wish.bundles {
        // What the other fragments have already makes no kernel of its own.
        let known = wishes(&all)?;
        let asked = Fragment { name: format!("bundle {bundle}"), text: lines.join("\n"), built_in: false };
        if wishes(std::slice::from_ref(&asked))?
            .iter()
            .any(|(symbol, w)| known.get(symbol).map(|k| &k.value) != Some(&w.value))
        {
            all.push(asked);
        }
    }
    for path in &wish.fragments {
        let name = path.display().to_string();
        let aid = AIDS.iter().find(|(aid, _)| *aid == name && !path.exists()).map(|(_, text)| text.to_string());
        let text = match aid {
            Some(text) => text,
            None => std::fs::read_to_string(path).map_err(|e| {
                let aids: Vec<&str> = AIDS.iter().map(|(aid, _)| *aid).collect();
                Fault::input(format!("--config {name}: {e}")).help(format!("a file, or one of: {}", aids.join(", ")))
            })?,
        };
        let fragment = Fragment { name, text, built_in: false };
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
    built_in: bool,
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
            let (value, name) = (value.to_string(), fragment.name.clone());
            all.insert(symbol.to_string(), Asked { value, fragment: name, built_in: fragment.built_in });
        }
    }
    Ok(all)
}

/// Compares what was asked with what kconfig made of it.
pub(super) fn verify(fragments: &[Fragment], final_config: &str, tree: &Path, arch: Arch) -> Outcome<()> {
    let finals: BTreeMap<&str, &str> =
        final_config.lines().filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('=')).collect();
    let mut lost = Vec::new();
    for (symbol, wish) in wishes(fragments)? {
        let got = finals.get(symbol.as_str()).copied().unwrap_or("n");
        if got != wish.value {
            let entry = entry(tree, arch, &symbol);
            if entry.is_none() && wish.built_in {
                continue;
            }
            let why = entry.map_or_else(|| "no such symbol in this kernel".into(), |entry| entry.explain(&finals));
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

/// A symbol's entry in a Kconfig file, as far as a reader would see it.
struct Entry {
    /// File, relative to the tree.
    place: String,
    /// Its `depends on` expressions.
    depends: Vec<String>,
}

impl Entry {
    /// Its dependencies, and which of the symbols in them are off. Only names that stand alone count: what follows a `!` or
    /// stands in a comparison may well be off.
    fn explain(&self, finals: &BTreeMap<&str, &str>) -> String {
        if self.depends.is_empty() {
            return format!(
                "{} names no dependency; the enclosing menu, or another symbol that selects it, decides",
                self.place
            );
        }
        let whole = self.depends.join(" && ");
        let plain = whole.replace(['(', ')'], " ").replace("! ", "!");
        let words: Vec<&str> = plain.split_whitespace().collect();
        let compared = |n: usize| {
            let is = |word: Option<&&str>| word.is_some_and(|word| ["=", "!=", "<", ">", "<=", ">="].contains(word));
            is(words.get(n + 1)) || (n > 0 && is(words.get(n - 1)))
        };
        let is_symbol = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let mut off: Vec<&str> = (0..words.len())
            .filter(|n| is_symbol(words[*n]) && !compared(*n) && !finals.contains_key(words[*n]))
            .map(|n| words[n])
            .collect();
        off.sort_unstable();
        off.dedup();
        let on = |word: &&str| word.strip_prefix('!').is_some_and(|name| finals.contains_key(name));
        let mut against: Vec<&str> = words.iter().copied().filter(on).collect();
        against.dedup();
        let unmet = match (off.is_empty(), against.is_empty()) {
            (true, true) => "the enclosing menu decides".to_string(),
            (false, true) => format!("unmet: {}", off.join(", ")),
            (true, false) => format!("unmet: {}", against.join(", ")),
            (false, false) => format!("unmet: {}, {}", off.join(", "), against.join(", ")),
        };
        format!("{}: depends on {whole}; {unmet}", self.place)
    }
}

/// Finds a symbol's entry.
fn entry(tree: &Path, arch: Arch, symbol: &str) -> Option<Entry> {
    let heads = [format!("config {symbol}"), format!("menuconfig {symbol}")];
    let is_kconfig = |entry: &walkdir::DirEntry| entry.file_name().to_string_lossy().starts_with("Kconfig");
    let own = Path::new("arch").join(match arch {
        Arch::X86_64 => "x86",
        Arch::Aarch64 | Arch::Ppc64le => super::compiler::kbuild_name(arch),
    });
    // Other architectures' entries have the same names.
    let relevant = |entry: &walkdir::DirEntry| {
        let path = entry.path().strip_prefix(tree).unwrap_or(entry.path());
        !path.starts_with("arch")
            || path.starts_with(&own)
            || path == Path::new("arch")
            || path == Path::new("arch/Kconfig")
    };
    let walk =
        walkdir::WalkDir::new(tree).sort_by_file_name().into_iter().filter_entry(relevant).flatten().filter(is_kconfig);
    for file in walk {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default().replace("\\\n", " ");
        let mut lines = text.lines().skip_while(|line| !heads.iter().any(|head| line.trim_end() == head));
        if lines.next().is_none() {
            continue;
        }
        let body = lines.take_while(|line| line.is_empty() || line.starts_with(char::is_whitespace));
        let depends =
            body.filter_map(|line| line.trim().strip_prefix("depends on ")).map(|text| text.trim().to_string());
        let place = file.path().strip_prefix(tree).unwrap_or(file.path()).display().to_string();
        return Some(Entry { place, depends: depends.collect() });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(text: &str) -> Vec<Fragment> {
        vec![Fragment { name: "mine.config".into(), text: text.into(), built_in: false }]
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
        let fault = verify(&asked, "CONFIG_GOOD=y\n", tree.path(), Arch::X86_64).expect_err("LOST was dropped");
        assert_eq!(fault.kind, FaultKind::Build);
        assert_eq!(
            fault.detail.as_deref(),
            Some("CONFIG_LOST=y (mine.config) became n: Kconfig: depends on RAREBUS && GOOD; unmet: RAREBUS")
        );
        assert!(verify(&asked, "CONFIG_GOOD=y\nCONFIG_LOST=y\n", tree.path(), Arch::X86_64).is_ok());
        assert!(verify(&asked, "CONFIG_GOOD=y\nCONFIG_LOST=y\nCONFIG_OFF=y\n", tree.path(), Arch::X86_64).is_err());
    }

    #[test]
    fn the_last_fragment_wins_and_nonsense_has_a_place() {
        let both = [fragment("CONFIG_A=y\n"), fragment("# CONFIG_A is not set\n")].concat();
        assert_eq!(wishes(&both).expect("two fragments")["A"].value, "n");
        let fault = wishes(&fragment("CONFIG_A=y\nCONFIG A\n")).expect_err("nonsense");
        assert!(fault.message.starts_with("mine.config:2:"), "{fault}");
    }
}
