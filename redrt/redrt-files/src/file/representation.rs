//! Data representations (MPI-5.0 section 14.5): conversion between elements in memory and bytes of the file. Three
//! representations are built in; others are functions of the program (`MPI_Register_datarep`).
//!
//! Each replica converts for itself. A leader's converted bytes are compared with its siblings' before they are
//! written, and siblings convert the bytes that the leader has read. So functions with equal results for equal bytes
//! keep replicas alike.

use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{
    Callback, MPI_ERR_CONVERSION, MPI_ERR_DUP_DATAREP, MPI_ERR_UNSUPPORTED_DATAREP, MPI_ERR_UNSUPPORTED_OPERATION,
    MPI_ERR_VALUE_TOO_LARGE, MPI_SUCCESS,
};
use redrt_comm::datatype::{self, Datatype};
use redrt_datatype::basic::Basic;
use redrt_datatype::{external_size, from_external, to_external};
use redrt_process::lock;
use redrt_runtime::callbacks;
use redrt_transport::memory::Scratch;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

/// Representation of elements in the file.
#[derive(Clone, Debug)]
pub enum Representation {
    /// As in memory. `internal` is the same.
    Native,
    /// As in memory, named `internal`.
    Internal,
    /// Big-endian, IEEE.
    External32,
    /// As converted by the program's functions.
    Registered(Arc<Registered>),
}

/// Conversion functions of the program.
#[derive(Debug)]
pub struct Functions {
    /// Converts from the file to memory; `None` for no conversion.
    pub read: Option<Callback>,
    /// Converts from memory to the file; `None` for no conversion.
    pub write: Option<Callback>,
    /// Returns the number of bytes of a predefined type in the file.
    pub extent: Callback,
    /// The program's argument for the functions.
    pub state: usize,
    /// True if the conversions take large counts (`MPI_Register_datarep_c`).
    pub wide: bool,
}

/// A representation of the program. It exists until the program ends: MPI has no call that removes it.
#[derive(Debug)]
pub struct Registered {
    name: String,
    functions: Functions,
    /// Results of the extent function.
    extents: Mutex<HashMap<DatatypeHandle, u64>>,
}

process_local! {
    static REGISTERED: Mutex<Vec<Arc<Registered>>> = Mutex::new(Vec::new());
}

/// `MPI_Register_datarep`. Fails with `MPI_ERR_DUP_DATAREP` if the name is taken.
pub fn register(name: String, functions: Functions) -> Result {
    let mut registered = lock(&REGISTERED);
    let is_known = |other: &Arc<Registered>| other.name == name;
    if matches!(&*name, "native" | "internal" | "external32") || registered.iter().any(is_known) {
        fail!(MPI_ERR_DUP_DATAREP, "there is a data representation called '{name}' already");
    }
    registered.push(Arc::new(Registered { name, functions, extents: Mutex::default() }));
    Ok(())
}

impl Representation {
    /// The representation with this name. Fails with `MPI_ERR_UNSUPPORTED_DATAREP` if none exists.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "native" => Ok(Self::Native),
            "internal" => Ok(Self::Internal),
            "external32" => Ok(Self::External32),
            other => match lock(&REGISTERED).iter().find(|registered| registered.name == other) {
                Some(registered) => Ok(Self::Registered(registered.clone())),
                None => fail!(MPI_ERR_UNSUPPORTED_DATAREP, "no data representation is called '{other}'"),
            },
        }
    }

    /// Name of the representation.
    pub fn name(&self) -> &str {
        match self {
            Self::Native => "native",
            Self::Internal => "internal",
            Self::External32 => "external32",
            Self::Registered(registered) => &registered.name,
        }
    }

    /// Returns true if the file has the same bytes as memory.
    pub fn is_native(&self) -> bool {
        matches!(self, Self::Native | Self::Internal)
    }

    /// Number of bytes of `count` elements in the file.
    pub fn size(&self, datatype: &Datatype, count: u64) -> Result<u64> {
        match self {
            Self::Native | Self::Internal => Ok(datatype.size() * count),
            Self::External32 => Ok(external_size(datatype, count)),
            Self::Registered(registered) => {
                let mut size = 0;
                for (basic, times) in datatype.sequence().totals() {
                    size += registered.size(datatype, basic)? * times;
                }
                Ok(size * count)
            }
        }
    }

    /// Sizes, in the file and in memory, of the one basic type of a datatype; `None` if it has several.
    pub fn uniform(&self, datatype: &Datatype) -> Result<Option<(u64, u64)>> {
        let Some(basic) = datatype.sequence().uniform() else { return Ok(None) };
        let size = match self {
            Self::Native | Self::Internal => basic.size(),
            Self::External32 => u64::from(basic.external_size),
            Self::Registered(registered) => registered.size(datatype, basic)?,
        };
        Ok(Some((size, basic.size())))
    }

    /// Returns true if every basic element has the same size in the file and in memory.
    pub fn keeps_sizes(&self, datatype: &Datatype) -> Result<bool> {
        match self {
            Self::Native | Self::Internal => Ok(true),
            Self::External32 => {
                Ok(datatype.sequence().totals().keys().all(|basic| u64::from(basic.external_size) == basic.size()))
            }
            Self::Registered(registered) => {
                for basic in datatype.sequence().totals().keys() {
                    if registered.size(datatype, *basic)? != basic.size() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Distance in the file from one element to the next (`MPI_File_get_type_extent`).
    pub fn extent(&self, datatype: &Datatype) -> Result<i64> {
        if self.keeps_sizes(datatype)? {
            return Ok(datatype.extent());
        }
        match self.uniform(datatype)? {
            Some((file, memory)) if datatype.extent() % memory as i64 == 0 => {
                Ok(datatype.extent() / memory as i64 * file as i64)
            }
            _ if datatype.predefined().is_some() => Ok(self.size(datatype, 1)? as i64),
            _ => {
                fail!(MPI_ERR_UNSUPPORTED_OPERATION, "the elements of the type have several sizes in '{}'", self.name())
            }
        }
    }

    /// Converts `count` elements at `start` to bytes of the file.
    pub fn encode(&self, datatype: &Arc<Datatype>, count: i64, start: *const c_void) -> Result<Vec<u8>> {
        let packed = || {
            let mut native = vec![0; datatype.packed_size(count) as usize];
            datatype.pack(start.cast(), count, &mut native);
            native
        };
        match self {
            Self::Native | Self::Internal => Ok(packed()),
            Self::External32 => Ok(to_external(datatype, count.max(0) as u64, &packed())?),
            Self::Registered(registered) => match registered.functions.write {
                Some(function) => registered.write(function, self, datatype, count, start),
                None if self.keeps_sizes(datatype)? => Ok(packed()),
                None => registered.lacks("write"),
            },
        }
    }

    /// Converts bytes of the file to `count` elements at `start`; there may be fewer bytes. Returns the number of bytes
    /// written to memory.
    pub fn decode(&self, datatype: &Arc<Datatype>, count: i64, bytes: &[u8], start: *mut c_void) -> Result<u64> {
        let unpack = |native: &[u8]| datatype.unpack(start.cast(), count, native) as u64;
        match self {
            Self::Native | Self::Internal => Ok(unpack(bytes)),
            Self::External32 => {
                let whole = bytes.len() as u64 / external_size(datatype, 1).max(1);
                let (native, _) = from_external(datatype, whole, bytes)?;
                Ok(unpack(&native))
            }
            Self::Registered(registered) => match registered.functions.read {
                Some(function) => registered.read(function, datatype, bytes, start),
                None if self.keeps_sizes(datatype)? => Ok(unpack(bytes)),
                None => registered.lacks("read"),
            },
        }
    }
}

impl Registered {
    fn lacks<T>(&self, which: &str) -> Result<T> {
        let name = &self.name;
        fail!(MPI_ERR_CONVERSION, "'{name}' has no {which} conversion, and other sizes than memory has")
    }

    /// Number of bytes of a basic element of `datatype` in the file.
    fn size(&self, datatype: &Datatype, basic: Basic) -> Result<u64> {
        let handle = datatype::handle_of_basic(datatype, basic);
        if let Some(known) = lock(&self.extents).get(&handle) {
            return Ok(*known);
        }
        let (code, extent) = callbacks::call_datarep_extent(self.functions.extent, handle, self.functions.state);
        if code != MPI_SUCCESS {
            fail!(MPI_ERR_CONVERSION, "the extent function of '{}' has failed with code {code}", self.name);
        }
        let Ok(extent) = u64::try_from(extent) else {
            fail!(MPI_ERR_CONVERSION, "the extent function of '{}' says {extent} bytes", self.name);
        };
        lock(&self.extents).insert(handle, extent);
        Ok(extent)
    }

    fn write(
        &self,
        function: Callback,
        representation: &Representation,
        datatype: &Arc<Datatype>,
        count: i64,
        start: *const c_void,
    ) -> Result<Vec<u8>> {
        let each = representation.size(datatype, 1)?;
        let mut file = Scratch::new((each * count.max(0) as u64) as usize);
        let region = file.region();
        let items = datatype.sequence().element_count * count.max(0) as u64;
        self.convert(function, datatype, each, items, start.cast_mut(), region.start())?;
        Ok(region.with_bytes(<[u8]>::to_vec))
    }

    fn read(&self, function: Callback, datatype: &Arc<Datatype>, bytes: &[u8], start: *mut c_void) -> Result<u64> {
        let mut sizes = Vec::new();
        datatype.sequence().try_for_each(&mut |basic, times| {
            sizes.push((self.size(datatype, basic)?, times));
            Ok::<_, redrt_abi::error::Error>(())
        })?;
        let each: u64 = sizes.iter().map(|(size, times)| size * times).sum();
        if each == 0 {
            return Ok(0);
        }
        // The file may end within an element.
        let (whole, mut rest) = (bytes.len() as u64 / each, bytes.len() as u64 % each);
        let mut begun = 0;
        for (size, times) in sizes {
            let fit = rest.checked_div(size).map_or(times, |room| room.min(times));
            begun += fit;
            rest -= fit * size;
            if fit < times {
                break;
            }
        }
        let items = whole * datatype.sequence().element_count + begun;
        let mut file = Scratch::new(bytes.len());
        let region = file.region();
        region.with_bytes_mut(|place| place.copy_from_slice(bytes));
        self.convert(function, datatype, each, items, start, region.start())?;
        Ok(datatype.bytes_of_elements(items))
    }

    /// Calls the program's function to convert `items` basic elements. The file has `each` bytes for one element of the
    /// type. A function with an int count is called several times if there are more, each time for whole elements of
    /// the type.
    fn convert(
        &self,
        function: Callback,
        datatype: &Arc<Datatype>,
        each: u64,
        items: u64,
        memory: *mut c_void,
        file: *mut u8,
    ) -> Result {
        let per_type = datatype.sequence().element_count.max(1);
        let most = if self.functions.wide { i64::MAX as u64 } else { c_int::MAX as u64 };
        if per_type > most {
            fail!(MPI_ERR_VALUE_TOO_LARGE, "one element of the type has {per_type} parts: use MPI_Register_datarep_c");
        }
        let step = most / per_type * per_type;
        let mut done = 0;
        while done < items {
            let now = step.min(items - done);
            let place = file.wrapping_add((done / per_type * each) as usize);
            let mut code = MPI_SUCCESS;
            datatype::with_handle(datatype, |handle| {
                code = callbacks::call_conversion(
                    function,
                    self.functions.wide,
                    callbacks::Conversion {
                        memory,
                        handle,
                        count: now as i64,
                        file: place.cast(),
                        position: done as i64,
                    },
                    self.functions.state,
                );
            });
            if code != MPI_SUCCESS {
                fail!(MPI_ERR_CONVERSION, "a conversion function of '{}' has failed with code {code}", self.name);
            }
            done += now;
        }
        Ok(())
    }
}
