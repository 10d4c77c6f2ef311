package footprint

const (
	// requestStack is the stack that a request needs below the filters, in bytes.
	// With what is in use already, it makes a stack of 32 KiB.
	requestStack = 20 << 10
	// filterStack is the stack that the filters need, in bytes. It makes a stack
	// of 16 KiB.
	filterStack = 10 << 10
)

// GrowStack grows the stack of the calling goroutine to the size that a request
// needs, while there is little on it to copy. Otherwise the runtime doubles the
// stack several times during the request and copies it each time, which takes a
// tenth of the time of a write.
func GrowStack() { roomForRequest(0) }

// GrowStackForFilters is GrowStack for a goroutine that runs the filters only.
func GrowStackForFilters() { roomForFilters(0) }

// roomForRequest has a large stack frame. It uses the frame only on a path that
// is not taken and that the compiler cannot rule out, because a frame in use
// would have to be cleared.
//
//go:noinline
func roomForRequest(i int) byte {
	if i == 0 {
		return 0
	}
	var room [requestStack]byte
	return room[i]
}

// roomForFilters is roomForRequest with a smaller frame.
//
//go:noinline
func roomForFilters(i int) byte {
	if i == 0 {
		return 0
	}
	var room [filterStack]byte
	return room[i]
}
