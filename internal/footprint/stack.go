package footprint

const (
	// requestStack is how much of a goroutine's stack the depths of a request
	// need, in bytes. With what is in use already, it makes a stack of 32 KiB.
	requestStack = 20 << 10
	// filterStack is how much what is before these depths needs. It makes one
	// of 16 KiB.
	filterStack = 10 << 10
)

// GrowStack grows the stack of the goroutine that has just begun to serve a
// request, once and while there is little on it to move. Otherwise it doubles
// several times in the depths of the request, and each time everything on it is
// found and moved: a tenth of the time of a write.
func GrowStack() { roomForRequest(0) }

// GrowStackForFilters is GrowStack for a goroutine that leaves the depths of a
// request to others.
func GrowStackForFilters() { roomForFilters(0) }

// roomForRequest has a large frame, for which the stack has to be large when it
// is called. It uses it only where the compiler cannot rule that out, as else
// it would have to be cleared.
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
