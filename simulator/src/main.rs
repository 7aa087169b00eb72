//! `sim`: runs seeds; built and started by `cargo xtask sim`.

#[cfg(ringccl_sim)]
mod cli;

fn main() -> std::process::ExitCode {
    #[cfg(ringccl_sim)]
    return cli::main();
    #[cfg(not(ringccl_sim))]
    {
        eprintln!("this build has no simulator; start it by `cargo xtask sim`");
        std::process::ExitCode::FAILURE
    }
}
