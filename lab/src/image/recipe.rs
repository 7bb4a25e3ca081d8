//! Image recipes: which packages, and which of their programs and files, written in `images/NAME.toml`.

use crate::fault::{Fault, Outcome};
use crate::topology::Arch;
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use std::path::Path;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../images");

/// A recipe, read.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// Whether it is the user's own file.
    pub own: bool,
    /// Its text, part of every key.
    pub text: String,
    /// One line for people.
    pub title: String,
    /// Packages; everything that they depend on comes along.
    pub packages: Vec<String>,
    /// Debian's suite that the packages come from; the machine's own release when `None`.
    pub suite: Option<String>,
    /// Programs and plug-ins: taken with the libraries that they name.
    pub programs: Vec<String>,
    /// Files and folders that are taken as they are.
    pub files: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    title: String,
    packages: Vec<String>,
    suite: Option<String>,
    programs: Vec<String>,
    #[serde(default)]
    files: Vec<String>,
}

/// The names of the built-in recipes, sorted.
pub fn image_names() -> Vec<String> {
    let stems = BUILT_IN.files().filter(|file| file.path().extension().is_some_and(|e| e == "toml"));
    let mut names: Vec<String> =
        stems.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_string())).collect();
    names.sort();
    names
}

/// Reads a recipe: a built-in name, or a file when there is a slash in it.
pub fn load_recipe(spec: &str) -> Outcome<Recipe> {
    let (name, origin, text) = match spec.contains('/') {
        true => {
            let text = std::fs::read_to_string(spec).map_err(|e| Fault::input(format!("image {spec}: {e}")))?;
            let name = Path::new(spec).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            (name.unwrap_or_default(), spec.to_string(), text)
        }
        false => {
            let file = BUILT_IN.get_file(format!("{spec}.toml")).and_then(|file| file.contents_utf8());
            let text = file.ok_or_else(|| {
                Fault::input(format!("no image is named `{spec}`"))
                    .help(format!("a file's path, or one of: {}", image_names().join(" ")))
            })?;
            (spec.to_string(), format!("images/{spec}.toml"), text.to_string())
        }
    };
    parse(name, spec.contains('/'), &origin, text)
}

fn parse(name: String, own: bool, origin: &str, text: String) -> Outcome<Recipe> {
    let file: File = toml::from_str(&text).map_err(|e| {
        let byte = e.span().map_or(0, |span| span.start);
        Fault::at(origin, &text, byte, e.message().trim_end()).detail(e.to_string())
    })?;
    let wrong = |what: String| Err(Fault::input(format!("{origin}: {what}")));
    if file.schema != 1 {
        return wrong(format!("schema {} is not known; this program reads schema 1", file.schema));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(plain) {
        return wrong(format!("`{name}`: an image's name is of letters, digits, - and _"));
    }
    let package = |p: &&String| p.is_empty() || !p.chars().all(|c| plain(c) || c == '+') || p.starts_with('-');
    if let Some(bad) = file.packages.iter().find(package) {
        return wrong(format!("`{bad}` is no package's name"));
    }
    if let Some(suite) = file.suite.iter().find(|suite| suite.is_empty() || !suite.chars().all(plain)) {
        return wrong(format!("`{suite}` is no suite"));
    }
    if let Some(path) = file.programs.iter().chain(&file.files).find(|p| !p.starts_with('/') || p.contains("..")) {
        return wrong(format!("`{path}` is no absolute path"));
    }
    Ok(Recipe {
        name,
        own,
        text,
        title: file.title,
        packages: file.packages,
        suite: file.suite,
        programs: file.programs,
        files: file.files,
    })
}

impl Recipe {
    /// Paths of an architecture: `{triplet}` and `{arch}` are Debian's words for it.
    pub fn paths(list: &[String], arch: Arch) -> Vec<String> {
        list.iter().map(|p| p.replace("{triplet}", arch.triplet()).replace("{arch}", arch.debian_name())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_is_right() {
        for name in image_names() {
            load_recipe(&name).unwrap_or_else(|fault| panic!("{fault}"));
        }
    }

    #[test]
    fn a_wrong_recipe_is_refused_with_its_place() {
        let right = "schema = 1\ntitle = \"x\"\npackages = [\"p\"]\nprograms = [\"/usr/bin/p\"]\n";
        parse("x".into(), true, "x.toml", right.into()).expect("right");
        for (from, to, says) in [
            ("title", "titel", "x.toml:2: unknown field"),
            ("schema = 1", "schema = 3", "schema 3"),
            ("[\"p\"]", "[\"--option\"]", "no package's name"),
            ("/usr/bin/p", "usr/bin/p", "no absolute path"),
            ("/usr/bin/p", "/../p", "no absolute path"),
        ] {
            let fault = parse("x".into(), true, "x.toml", right.replacen(from, to, 1)).expect_err(to);
            assert!(fault.message.contains(says), "{fault}");
        }
    }
}
