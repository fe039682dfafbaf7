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
    if system == "windows" {
        println!("One command for all of them, in a terminal of an administrator:");
        println!("  {}", course::WINDOWS);
    } else {
        println!("One command for all of them, at the top of the clone, with Docker installed:");
        println!("  {}", course::ELSEWHERE);
        println!("or a whole virtual machine (https://lima-vm.io; clone anew in there):");
        println!("  {}", course::NEWER);
        println!(
            "Written to build here too, and not tried by us: cargo run -p ch01, cargo run -p ch02,"
        );
        println!("  cargo run -p ch04 --bin ch04-mio, cargo run -p ch04 --bin ch04-polling");
    }
    println!("There: cargo course doctor");
    std::process::ExitCode::FAILURE
}
