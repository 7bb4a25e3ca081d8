//! Builds what the one binary `topolab` carries inside, so that it is all that a user has to carry around: the guest agent, a
//! static program, and the turnstile, a library for the host's QEMU.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The guests that this build can serve: x86-64 so far, with the toolchain's own target.
const TARGET: &str = "x86_64-unknown-linux-gnu";

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
        "lab/turnstile",
        "Cargo.lock",
        "topologies",
        "images",
        "lab/busy",
        "lab/kconfig",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    // PID 1 is static, since its initramfs holds no libc.
    let agent = cargo(&root, "topolab-agent", &["-Ctarget-feature=+crt-static", "-Crelocation-model=static"])?;
    println!("cargo::rustc-env=TOPOLAB_AGENT={}", agent.join("topolab-agent").display());
    let turnstile = cargo(&root, "topolab-turnstile", &[])?;
    println!("cargo::rustc-env=TOPOLAB_TURNSTILE={}", turnstile.join("libtopolab_turnstile.so").display());
    Ok(())
}

/// Builds a package of this workspace with flags of its own; returns the folder of its products.
fn cargo(root: &Path, package: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let target_dir = variable("OUT_DIR")?.join(package);
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.args(["build", "--release", "--locked", "--package", package, "--target", TARGET]);
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
    let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    match output.status.success() {
        true => Ok(target_dir.join(TARGET).join("release")),
        false => {
            Err(format!("{package} did not build: {}", String::from_utf8_lossy(&output.stderr).replace('\n', " | ")))
        }
    }
}
