//! Functions of the families' own (`MPIX_`) by which programs learn if buffers may be memory of a device. They may not.

/// The functions, each without arguments; 0 is no.
#[macro_export]
macro_rules! device_queries {
    ($($name:ident, $profiled:ident;)*) => {$(
        /// Support for buffers in memory of such a device: 0, none.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            0
        }

        /// The same under the name that tools call.
        #[unsafe(no_mangle)]
        pub extern "C" fn $profiled() -> c_int {
            0
        }
    )*};
}
