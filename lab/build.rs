//! Builds what the one binary `topolab` carries inside, so that it is all that a user has to carry around: the guest agent, a
//! static program, and the turnstile, a library for the host's QEMU.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The host's target, and that of its own guests.
const HOST: &str = "x86_64-unknown-linux-gnu";
/// The targets of other guests, with the variable that names the agent's file and the C compiler that links it.
const FOREIGN: [(&str, &str, &str); 2] = [
    ("aarch64-unknown-linux-gnu", "TOPOLAB_AGENT_AARCH64", "aarch64-linux-gnu-gcc"),
    ("powerpc64le-unknown-linux-gnu", "TOPOLAB_AGENT_PPC64LE", "powerpc64le-linux-gnu-gcc"),
];
/// PID 1 is static, since its initramfs holds no libc.
const STATIC: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}

fn variable(name: &str) -> Result<PathBuf, String> {
    std::env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("cargo did not set {name}"))
}

fn build() -> Result<(), String> {
    let lab = variable("CARGO_MANIFEST_DIR")?;
    let root = lab.parent().ok_or("lab/ has no parent folder")?.to_path_buf();
    for watched in [
        "lab/agent",
        "lab/wire",
        "lab/model",
        "lab/tools",
        "lab/turnstile",
        "Cargo.lock",
        "topologies",
        "images",
        "lab/busy",
        "lab/kconfig",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    let agent = cargo(&root, "topolab-agent", &STATIC, HOST, None)?;
    println!("cargo::rustc-env=TOPOLAB_AGENT={}", agent.join("topolab-agent").display());
    let turnstile = cargo(&root, "topolab-turnstile", &[], HOST, None)?;
    println!("cargo::rustc-env=TOPOLAB_TURNSTILE={}", turnstile.join("libtopolab_turnstile.so").display());
    // Without a Rust for their targets, topolab has no agents for other guests, and says so when one is asked for.
    let cross = cross_rust();
    // A path that is not there would count as changed every time; ci/cross-rust touches this file instead.
    if cross.exists() {
        println!("cargo::rerun-if-changed={}", cross.display());
    }
    for (target, name, linker) in FOREIGN {
        let agent = match cross.exists() {
            true => cargo(&root, "topolab-agent", &STATIC, target, Some((&cross, linker)))?.join("topolab-agent"),
            false => {
                let none = variable("OUT_DIR")?.join("no-agent");
                std::fs::write(&none, "").map_err(|e| format!("{}: {e}", none.display()))?;
                none
            }
        };
        println!("cargo::rustc-env={name}={}", agent.display());
    }
    Ok(())
}

/// Where ci/cross-rust puts its compiler.
fn cross_rust() -> PathBuf {
    println!("cargo::rerun-if-env-changed=XDG_CACHE_HOME");
    let set = std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".cache");
    set.unwrap_or_else(home).join("topolab/cross-rust/rustc")
}

/// Builds a package of this workspace with flags of its own; returns the folder of its products. `cross` is the compiler and
/// the linker for another target.
fn cargo(
    root: &Path,
    package: &str,
    flags: &[&str],
    target: &str,
    cross: Option<(&Path, &str)>,
) -> Result<PathBuf, String> {
    let target_dir = variable("OUT_DIR")?.join(package);
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.args(["build", "--release", "--locked", "--package", package, "--target", target]);
    cargo.arg("--manifest-path").arg(root.join("Cargo.toml")).arg("--target-dir").arg(&target_dir);
    // The outer build's flags are for the host's program.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_ENCODED_") || text == "RUSTFLAGS" || text.starts_with("CARGO_CFG_") {
            cargo.env_remove(&name);
        }
    }
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|h| format!("{h}/.cargo")))
        .unwrap_or_default();
    // A guest's bytes must not depend on where this checkout lies. Joined by the unit separator, the form in which a path with
    // spaces survives.
    let remap =
        [format!("--remap-path-prefix={}=/topolab", root.display()), format!("--remap-path-prefix={home}=/cargo")];
    let flags: Vec<&str> = flags.iter().copied().chain(remap.iter().map(String::as_str)).collect();
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_MAKEFLAGS");
    if let Some((rustc, linker)) = cross {
        let key = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
        // The outer compiler's wrappers and hints are for another Rust.
        cargo.env("RUSTC", rustc).env(key, linker).env_remove("RUSTC_WRAPPER").env_remove("RUSTUP_TOOLCHAIN");
    }
    let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    match output.status.success() {
        true => Ok(target_dir.join(target).join("release")),
        false => Err(format!(
            "{package} did not build for {target}: {}",
            String::from_utf8_lossy(&output.stderr).replace('\n', " | ")
        )),
    }
}
