//! Debian's archive for an ordinary user: a private apt configuration in the cache, never the system's.
//!
//! apt itself does the work: it knows the mirror that this machine is set up for, its proxies and its keys, and it
//! verifies every list and package against them.

use crate::cancel::Cancel;
use crate::fault::{Fault, Outcome, Trying};
use crate::lock;
use crate::paths::{CacheDir, is_fresh};
use crate::topology::Arch;
use duct::cmd;
use std::path::{Path, PathBuf};

/// A private apt with its own sources, lists and archives.
pub struct Apt {
    folder: PathBuf,
    arch: Arch,
    _lock: lock::Held,
}

/// The archive that this machine is configured for.
struct Mirror {
    uri: String,
    /// The keyring that the machine's own sources name; without one apt trusts its own keys.
    keyring: Option<String>,
    release: String,
}

impl Mirror {
    /// A deb822 sources file for these suites.
    fn sources(&self, suites: &[&str]) -> String {
        let (uri, suites) = (&self.uri, suites.join(" "));
        let signed_by = self.keyring.as_ref().map(|keyring| format!("Signed-By: {keyring}\n")).unwrap_or_default();
        format!("Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\n{signed_by}")
    }
}

impl Apt {
    /// Opens the private apt `name` with the machine's own release and further suites of the same mirror. One process at
    /// a time: the others wait.
    pub fn open(cache: &CacheDir, name: &str, arch: Arch, further_suites: &[&str], cancel: &Cancel) -> Outcome<Self> {
        // Lists of one architecture only: nothing is ever installed, so no package meets one of another.
        let folder = cache.folder(&match arch {
            Arch::X86_64 => format!("apt/{name}"),
            Arch::Aarch64 | Arch::Ppc64le => format!("apt/{name}-{arch}"),
        })?;
        for sub in ["lists/partial", "archives/partial", "etc"] {
            std::fs::create_dir_all(folder.join(sub)).trying(folder.display())?;
        }
        let lock = lock::exclusive(&folder.join("lock"), cancel)?;
        let mirror = mirror()?;
        let backports = format!("{}-backports", mirror.release);
        let suites: Vec<&str> =
            [mirror.release.as_str(), &backports].into_iter().chain(further_suites.iter().copied()).collect();
        let sources = mirror.sources(&suites);
        let path = folder.join("etc/topolab.sources");
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&sources) {
            std::fs::write(&path, sources).trying(path.display())?;
            let _ = std::fs::remove_file(folder.join("updated"));
        }
        // An empty list of installed packages: what is on this machine has no say in what goes into a guest.
        std::fs::write(folder.join("status"), "").trying(folder.display())?;
        Ok(Self { folder, arch, _lock: lock })
    }

    /// The options that make apt private.
    fn options(&self) -> Vec<String> {
        let at = |sub: &str| self.folder.join(sub).display().to_string();
        [
            ("APT::Architecture", self.arch.debian_name().into()),
            ("APT::Architectures", self.arch.debian_name().into()),
            ("Dir::Etc::sourcelist", "/dev/null".into()),
            ("Dir::Etc::sourceparts", at("etc")),
            ("Dir::Etc::preferences", "/dev/null".into()),
            ("Dir::Etc::preferencesparts", "/dev/null".into()),
            ("Dir::State", at("")),
            ("Dir::State::lists", at("lists")),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", at("")),
            ("Dir::Cache::archives", at("archives")),
            ("Dir::Cache::pkgcache", at("pkgcache.bin")),
            ("Dir::Cache::srcpkgcache", at("srcpkgcache.bin")),
            ("APT::Keep-Downloaded-Packages", "true".into()),
            // The folder is locked above; apt's own locks want root's folders.
            ("Debug::NoLocking", "true".into()),
            // Without this, root's apt wants to become a user who cannot enter a private cache.
            ("APT::Sandbox::User", "root".into()),
            // sid's Release file expires within a week and mirrors lag; the signature is verified all the same.
            ("Acquire::Check-Valid-Until", "false".into()),
        ]
        .into_iter()
        .flat_map(|(key, value): (&str, String)| ["-o".to_string(), format!("{key}={value}")])
        .collect()
    }

    fn run(&self, program: &str, words: &[&str]) -> Outcome<String> {
        let mut all = self.options();
        all.extend(words.iter().map(|word| (*word).to_string()));
        // `apt-get download` leaves its package where it runs.
        let output = cmd(program, all)
            .dir(self.archives())
            .stdin_null()
            .stdout_capture()
            .stderr_capture()
            .unchecked()
            .run()
            .trying(program)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Fault::lab(format!("{program} {} failed ({})", words.join(" "), output.status)).detail(said.trim()))
    }

    /// Brings the lists up to date when they are older than a day; returns whether all of them are.
    pub fn update(&self) -> Outcome<bool> {
        let stamp = self.folder.join("updated");
        if is_fresh(&stamp) {
            return Ok(true);
        }
        let Err(fault) = self.run("apt-get", &["-q", "update"]) else {
            return std::fs::write(&stamp, "").trying(stamp.display()).map(|()| true);
        };
        // A mirror in the middle of its own update fails for one suite and serves the others. What is then missing is said when it
        // is asked for; without the stamp the next call tries again.
        let lists = std::fs::read_dir(self.folder.join("lists")).trying(self.folder.display())?;
        let any = lists.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"));
        if !any {
            return Err(fault);
        }
        let first = fault.detail.as_deref().unwrap_or_default().lines().next().unwrap_or_default().to_string();
        eprintln!("topolab: some lists of the archive could not be fetched, going on with the others: {first}");
        Ok(false)
    }

    /// The versions of a package that the archive has, as it lists them.
    pub fn versions(&self, package: &str) -> Outcome<Vec<String>> {
        let listed = self.run("apt-cache", &["madison", package])?;
        let second = |line: &str| line.split('|').nth(1).map(|version| version.trim().to_string());
        let mut versions: Vec<String> = listed.lines().filter_map(second).collect();
        versions.dedup();
        Ok(versions)
    }

    /// The names of packages that begin so.
    pub fn names(&self, prefix: &str) -> Outcome<Vec<String>> {
        let listed = self.run("apt-cache", &["pkgnames", prefix])?;
        let mut names: Vec<String> = listed.lines().map(str::to_string).collect();
        names.sort();
        Ok(names)
    }

    /// Downloads one package alone and returns its file.
    pub fn download(&self, package: &str, version: &str) -> Outcome<PathBuf> {
        let named =
            |deb: &PathBuf| deb.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&format!("{package}_")));
        self.fetch(&["-q", "download", &format!("{package}={version}")])?
            .into_iter()
            .find(named)
            .ok_or_else(|| Fault::lab(format!("apt did not leave {package} {version} in its archives")))
    }

    /// Downloads packages with everything that they depend on, from a suite or the machine's own release, and returns the files.
    pub fn closure(&self, packages: &[String], suite: Option<&str>) -> Outcome<Vec<PathBuf>> {
        let release = mirror()?.release;
        let suite = suite.unwrap_or(&release);
        let mut words = vec!["-q", "-y", "--no-install-recommends", "--download-only", "-t", suite, "install"];
        words.extend(packages.iter().map(String::as_str));
        self.fetch(&words)
    }

    /// Runs an apt-get that leaves packages in the archives, emptied before.
    fn fetch(&self, words: &[&str]) -> Outcome<Vec<PathBuf>> {
        let archives = self.archives();
        for old in debs(&archives)? {
            std::fs::remove_file(&old).trying(old.display())?;
        }
        self.run("apt-get", words)?;
        debs(&archives)
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("archives")
    }
}

/// The package files of a folder, sorted.
fn debs(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).trying(folder.display())?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "deb"))
        .collect();
    found.sort();
    Ok(found)
}

/// Asks apt which archive the machine's own release comes from.
fn mirror() -> Outcome<Mirror> {
    let os = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = os
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .unwrap_or_default()
        .trim_matches('"')
        .to_string();
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)";
    let help = "this needs Debian's apt with a configured archive; give a kernel as image:FILE instead";
    let listed = cmd("apt-get", ["indextargets", "--format", format, "Created-By: Packages"])
        .stdin_null()
        .stderr_null()
        .read()
        .map_err(|e| Fault::lab(format!("apt-get: {e}")).help(help))?;
    let rows = || listed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // The release in /etc/os-release names the suite; a machine between two releases has what is configured.
    let own = rows().find(|row| row.get(1) == Some(&release.as_str()) && row.get(2) == Some(&"main"));
    let whole_release = |row: &Vec<&str>| {
        let archive = row.first().is_some_and(|uri| uri.trim_end_matches('/').ends_with("/debian"));
        archive && row.get(1).is_some_and(|name| !name.contains('-')) && row.get(2) == Some(&"main")
    };
    let any = rows().find(whole_release);
    let row = own
        .or(any)
        .ok_or_else(|| Fault::lab("apt is configured for no Debian archive with the component main").help(help))?;
    // A source without a keyring prints the unexpanded word.
    let keyring = row.get(3).filter(|keyring| keyring.starts_with('/')).map(|keyring| keyring.to_string());
    Ok(Mirror { uri: row[0].to_string(), keyring, release: row[1].to_string() })
}

/// The machine's own release and its backports as a sources file of their own, and the name of the backports.
pub fn backports_source() -> Outcome<(String, String)> {
    let mirror = mirror()?;
    let backports = format!("{}-backports", mirror.release);
    let text = mirror.sources(&[&mirror.release, &backports]);
    Ok((text, backports))
}

/// Unpacks a package's files below `folder`.
pub fn unpack(deb: &Path, folder: &Path) -> Outcome<()> {
    let output = cmd!("dpkg-deb", "-x", deb, folder)
        .stdin_null()
        .stdout_null()
        .stderr_capture()
        .unchecked()
        .run()
        .trying("dpkg-deb")?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Fault::lab(format!("dpkg-deb could not unpack {}", deb.display()))
            .detail(String::from_utf8_lossy(&output.stderr).trim())),
    }
}
