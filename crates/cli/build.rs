//! Exports the C functions that sysbench scripts call through FFI (`ffi.C.sb_rand_uniform`): LuaJIT looks them up in
//! the running program.

fn main() {
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
