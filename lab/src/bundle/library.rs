//! Where bundles come from: built in, or a folder of the user's.

use super::{Bundle, Model, Runs, check};
use crate::fault::{Fault, Outcome};
use include_dir::{Dir, include_dir};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../images/bundles");
/// The declaration's file.
const DECLARATION: &str = "bundle.toml";
/// The bundle that runs rt-app profiles.
const PROFILES: &str = "rt-app-profile";
/// Largest file that goes into a guest with its bundle: they travel in the order.
const LARGEST: u64 = 1 << 20;

/// The names of the built-in bundles, sorted.
pub fn bundle_names() -> Vec<String> {
    let mut names: Vec<String> =
        BUILT_IN.dirs().filter_map(|dir| Some(dir.path().file_name()?.to_str()?.to_string())).collect();
    names.sort();
    names
}

/// Loads a bundle by name, or from a folder that has a bundle.toml.
pub fn load_bundle(spec: &str) -> Outcome<Bundle> {
    if spec.ends_with(".json") {
        return from_profile(Path::new(spec));
    }
    if spec.contains('/') || spec == "." {
        return from_folder(Path::new(spec));
    }
    let unknown = || {
        let folder = match Path::new(spec).join(DECLARATION).exists() {
            true => format!("{spec}/ for the folder"),
            false => "a folder's path, with a slash in it".to_string(),
        };
        Fault::input(format!("no bundle is named `{spec}`"))
            .help(format!("{folder}, or one of: {}", bundle_names().join(" ")))
    };
    let folder = BUILT_IN.get_dir(spec).ok_or_else(unknown)?;
    let mut files = BTreeMap::new();
    for file in folder.files() {
        let name = file.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.insert(name, file.contents_utf8().unwrap_or_default().to_string());
    }
    let text = files.remove(DECLARATION).ok_or_else(unknown)?;
    check::parse(spec, &format!("{spec}/{DECLARATION}"), &text, files)
}

/// An rt-app profile by itself: the bundle that runs profiles, with this one.
fn from_profile(path: &Path) -> Outcome<Bundle> {
    let text = std::fs::read_to_string(path).map_err(|e| Fault::input(format!("profile {}: {e}", path.display())))?;
    let bundle = load_bundle(PROFILES)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Runs::Model(model) = bundle.runs else { return Err(Fault::lab(format!("{PROFILES} is no model"))) };
    // What chose among the bundle's own profiles has nothing left to choose.
    let params = bundle.params.into_iter().filter(|param| !model.chooses(&param.name)).collect();
    // A bracket in a file's name is none of a placeholder.
    let key = name.replace(['{', '}'], "");
    let files = BTreeMap::from([(key.clone(), text)]);
    let runs = Runs::Model(Box::new(Model { profile: Some(key), files, ..*model }));
    Ok(Bundle { name: name.trim_end_matches(".json").to_string(), runs, params, ..bundle })
}

fn from_folder(folder: &Path) -> Outcome<Bundle> {
    let wrong = |path: &PathBuf, e: &dyn std::fmt::Display| Fault::input(format!("bundle {}: {e}", path.display()));
    let path = folder.join(DECLARATION);
    let text = std::fs::read_to_string(&path).map_err(|e| wrong(&path, &e))?;
    let mut files = BTreeMap::new();
    let entries = std::fs::read_dir(folder).map_err(|e| wrong(&path, &e))?;
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name == DECLARATION || name.starts_with('.') || name.ends_with('~') || !path.is_file() {
            continue;
        }
        if entry.metadata().map_err(|e| wrong(&path, &e))?.len() > LARGEST {
            return Err(
                wrong(&path, &"larger than 1 MiB").detail("a bundle's files are texts; programs belong into an image")
            );
        }
        files.insert(name, std::fs::read_to_string(&path).map_err(|e| wrong(&path, &e))?);
    }
    let whole = std::path::absolute(folder).map_err(|e| wrong(&path, &e))?;
    let name = whole.file_name().map(|n| n.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| wrong(&path, &"the folder has no name"))?;
    let bundle = check::parse(&name, &path.display().to_string(), &text, files)?;
    Ok(Bundle { folder: Some(folder.to_path_buf()), ..bundle })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_bundle_is_right() {
        assert!(bundle_names().len() > 1);
        for name in bundle_names() {
            load_bundle(&name).unwrap_or_else(|fault| panic!("{fault}"));
        }
    }
}
