package footprint

// requestStack is how much of a goroutine's stack the depths of a request need,
// in bytes. With what is in use already, it makes a stack of 32 KiB.
const requestStack = 20 << 10

// GrowStack grows the stack of the goroutine that has just begun to serve a
// request, once and while there is little on it to move. Otherwise it doubles
// several times in the depths of the request, and each time everything on it is
// found and moved: a tenth of the time of a write.
func GrowStack() { touch(0) }

// touch has a large frame. What it returns depends on i, so that the compiler
// keeps the frame.
//
//go:noinline
func touch(i int) byte {
	var room [requestStack]byte
	return room[i]
}
