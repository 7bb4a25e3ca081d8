//! Reads whatever holds patches: a mail, an mbox, a maildir, a folder, a quilt series, or a thread by its message-id through b4.

use super::mail::{self, Mail};
use super::series::Series;
use super::subject::Subject;
use super::thread::{self, Held};
use crate::fault::{Fault, Outcome, Trying};
use duct::cmd;
use std::path::{Path, PathBuf};

/// How patches are taken in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Intake {
    /// Take a patch that is only quoted in a reply.
    pub unquote: bool,
    /// Undo damage where nothing has to be guessed.
    pub repair: bool,
    /// Take a part of a series.
    pub partial: bool,
    /// This version instead of the newest.
    pub version: Option<u32>,
}

/// Where patches are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or a folder.
    Path(PathBuf),
    /// A mail by its id, which b4 fetches.
    Message(String),
}

/// Endings of files in a folder that are looked into.
const ENDINGS: &[&str] = &["patch", "diff", "eml", "mbox", "mbx", "mail"];

impl Source {
    /// A path that is there, or what looks like a message-id or its address in an archive.
    pub fn parse(text: &str) -> Self {
        let path = PathBuf::from(text);
        if path.exists() {
            return Self::Path(path);
        }
        let id = match text.split_once("://") {
            // The last part of an archive's address with an @ in it.
            Some((_, rest)) => rest.split('/').rev().find(|part| part.contains('@')),
            None => Some(text).filter(|text| text.contains('@') && !text.contains(['/', ' '])),
        };
        match id {
            Some(id) => Self::Message(id.trim_start_matches('<').trim_end_matches('>').to_string()),
            None => Self::Path(path),
        }
    }
}

/// Reads a series. Nothing is applied; what cannot be used has `problems`.
pub fn read(source: &Source, intake: Intake) -> Outcome<Series> {
    match source {
        Source::Path(path) => of_path(path, intake),
        Source::Message(id) => {
            let folder = tempfile::Builder::new().prefix("topolab-b4-").tempdir().trying("a temporary folder")?;
            let mbox = fetch(id, folder.path())?;
            let series = of_path(&mbox, intake)?;
            Ok(Series { name: id.clone(), ..series })
        }
    }
}

fn fetch(id: &str, folder: &Path) -> Outcome<PathBuf> {
    if crate::paths::on_path("b4").is_none() {
        return Err(Fault::input(format!(
            "{id}: no such file, and b4, which fetches mails by their id, is not installed"
        ))
        .help("apt-get install b4, or save the thread as an mbox"));
    }
    let b4 = cmd!("b4", "mbox", "--outdir", folder, "--mbox-name", "thread.mbx", id)
        .stdin_null()
        .stdout_null()
        .stderr_capture()
        .unchecked();
    let output = b4.run().trying("b4")?;
    let path = folder.join("thread.mbx");
    match output.status.success() && path.is_file() {
        true => Ok(path),
        false => {
            Err(Fault::input(format!("b4 could not fetch {id}")).detail(String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}

fn of_path(path: &Path, intake: Intake) -> Outcome<Series> {
    let wrong = |e: std::io::Error| Fault::input(format!("patch {}: {e}", path.display()));
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
    // `.` has no name of its own.
    let file = file
        .or_else(|| path.canonicalize().ok()?.file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_default();
    let name = ENDINGS
        .iter()
        .fold(file.as_str(), |name, end| name.strip_suffix(&format!(".{end}")).unwrap_or(name))
        .to_string();
    let (files, held) = match std::fs::metadata(path).map_err(wrong)?.is_dir() {
        true => in_folder(path)?,
        false => (vec![path.to_path_buf()], Held::Mailbox),
    };
    if files.is_empty() {
        return Err(Fault::input(format!("{}: no *.patch in this folder", path.display()))
            .help(format!("files ending in {}, a quilt `series`, or a maildir", ENDINGS.join(", "))));
    }
    let mut mails = Vec::new();
    for file in &files {
        let bytes = std::fs::read(file).map_err(|e| Fault::input(format!("patch {}: {e}", file.display())))?;
        let bytes = if bytes.starts_with(GZIP) { unzipped(file)? } else { bytes };
        let label = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let parts = mail::split(&bytes);
        let several = parts.len() > 1;
        for (n, part) in parts.iter().enumerate() {
            let label = if several { format!("{label}, mail {}", n + 1) } else { label.clone() };
            if let Some(lost) = joined_lines(&label, part) {
                return Ok(Series { name, ..lost });
            }
            mails.push(Mail::parse(&label, part));
        }
    }
    Ok(thread::assemble(&name, mails, held, intake))
}

/// How a gzip file begins (RFC 1952, 2.3.1): archives give threads so.
const GZIP: &[u8] = b"\x1f\x8b";

fn unzipped(file: &Path) -> Outcome<Vec<u8>> {
    let output = cmd!("gzip", "-dc", file).stdout_capture().stderr_capture().unchecked().run().trying("gzip")?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            Err(Fault::input(format!("patch {}: {}", file.display(), String::from_utf8_lossy(&output.stderr).trim())))
        }
    }
}

/// The files of a folder in their order.
fn in_folder(folder: &Path) -> Outcome<(Vec<PathBuf>, Held)> {
    let wrong = |e: std::io::Error| Fault::input(format!("patch {}: {e}", folder.display()));
    let listed = |folder: &Path| -> Outcome<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).map_err(wrong)?;
        let mut paths: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        Ok(paths)
    };
    let series = folder.join("series");
    if series.is_file() {
        return Ok((quilt(folder, &std::fs::read_to_string(&series).map_err(wrong)?)?, Held::List));
    }
    // A maildir's mails have no ending (maildir(5)).
    if folder.join("cur").is_dir() && folder.join("new").is_dir() {
        return Ok(([listed(&folder.join("cur"))?, listed(&folder.join("new"))?].concat(), Held::Mailbox));
    }
    let wanted = |path: &PathBuf| path.extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known));
    Ok((listed(folder)?.into_iter().filter(wanted).collect(), Held::Files))
}

/// The patches that a quilt series names (quilt(1)): one a line, `#` begins a comment, and only `-p1` is understood.
fn quilt(folder: &Path, text: &str) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let place = format!("{}:{}", folder.join("series").display(), n + 1);
        if let Some(option) = words.find(|option| *option != "-p1") {
            return Err(Fault::input(format!("{place}: `{option}` is not understood; patches are of -p1")));
        }
        let inside = Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let path = folder.join(name);
        if !inside || !path.is_file() {
            return Err(Fault::input(format!("{place}: there is no patch `{name}` in this folder")));
        }
        files.push(path);
    }
    Ok(files)
}

/// Some archives show a mail with its lines joined into one. Nothing can be applied from that, but its subject can be read.
fn joined_lines(label: &str, bytes: &[u8]) -> Option<Series> {
    let text = String::from_utf8_lossy(bytes);
    let long = text.trim_end().lines().count() <= 2 && text.len() > 500;
    let (_, behind) = text.split_once(" Subject: ").filter(|_| long)?;
    let subject = behind.split(" Date: ").next()?;
    let subject = Subject::parse(subject.get(..300).unwrap_or(subject))?;
    let id = text.split_once(" Message-ID: <").and_then(|(_, rest)| rest.split_once('>')).map(|(id, _)| id.to_string());
    let fetch = id.map_or("get the thread as an mbox".to_string(), |id| {
        format!("get the thread as an mbox; with b4: `b4 am {id}`")
    });
    let total = subject.total;
    let what = match subject.is_cover() {
        true => Fault::input(format!("{label}: this is the cover letter of a series of {total}, without its patches"))
            .detail(format!(
                "missing: {}; all lines of this file were joined into one",
                (1..=total).map(|n| format!("{n}/{total}")).collect::<Vec<_>>().join(", ")
            )),
        false => {
            Fault::input(format!("{label}: all lines of this mail were joined into one; a patch cannot be had from it"))
        }
    };
    Some(Series {
        title: subject.title.clone(),
        cover: subject.is_cover(),
        version: subject.version,
        versions: vec![subject.version],
        total,
        missing: if subject.is_cover() { (1..=total).collect() } else { vec![subject.number.unwrap_or(1)] },
        problems: vec![what.help(fetch)],
        ..Series::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_s_joined_lines_still_say_what_the_mail_was() {
        let filler = "X-Long: some header or other ".repeat(30);
        let text = format!(
            "From a@b Thu Jan 1 00:00:00 1970 {filler}Subject: [PATCH v2 0/3] f: words Date: Mon, 30 Nov 2026 Message-ID: <7@x> all the rest"
        );
        let series = joined_lines("seed", text.as_bytes()).expect("a cover letter");
        assert_eq!((series.version, series.missing.as_slice(), series.cover), (2, &[1, 2, 3][..], true));
        assert!(series.problems[0].help.as_deref().is_some_and(|help| help.ends_with("`b4 am 7@x`")));
        let one = text.replace("v2 0/3", "v2");
        let series = joined_lines("seed", one.as_bytes()).expect("a mail");
        assert!(series.problems[0].message.contains("joined into one"));
        assert!(joined_lines("mail", b"Subject: [PATCH] x\n\nbody\n").is_none());
    }

    #[test]
    fn a_message_is_named_by_id_or_by_its_address() {
        let id = |text: &str| match Source::parse(text) {
            Source::Message(id) => Some(id),
            Source::Path(_) => None,
        };
        assert_eq!(id("<2026.1@x.org>").as_deref(), Some("2026.1@x.org"));
        assert_eq!(id("https://archive.example/all/2026.1@x.org/T/#u").as_deref(), Some("2026.1@x.org"));
        assert_eq!(id("patches/a@b"), None);
        assert_eq!(id("a.patch"), None);
    }
}
