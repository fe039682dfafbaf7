//! `cargo course`: the exercises, one verdict at a time.

#[cfg(target_os = "linux")]
mod linux;

/// Everything is in [`linux`].
#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

/// What `cargo course doctor` has to say where nothing else of it can be built.
#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    let system = std::env::consts::OS;
    println!(
        "This is {system}, and the exercises are about Linux's system calls: none of them runs here."
    );
    println!("One command for all of them, at the top of the clone:");
    println!("  {}", if system == "windows" { course::WINDOWS } else { course::ELSEWHERE });
    println!("There: cargo course doctor");
    std::process::ExitCode::FAILURE
}
