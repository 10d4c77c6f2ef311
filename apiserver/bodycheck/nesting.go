package bodycheck

import (
	"fmt"
	"net/http"
	"strings"

	"svc.dev/svc/internal/protofields"
)

// selectNesting selects protobuf bodies, which may not be nested deeper than
// protofields.MaxNesting.
//
// JSON and YAML decoders enforce that limit themselves. The protobuf decoders
// of API types do not: they, and the conversions behind them, recurse once for
// each level, and a body within the size limit can hold half a million levels
// of a type that contains itself (a CustomResourceDefinition's schema). A
// goroutine's stack that overflows ends the process; no handler can recover.
func selectNesting(req *http.Request) Func {
	if !isProtobuf(req) {
		return nil
	}
	return func(body []byte) ([]byte, error) {
		if nestedDeeper(body[min(len(protofields.Prefix), len(body)):], protofields.MaxNesting) {
			return nil, fmt.Errorf("the message is nested deeper than %d levels", protofields.MaxNesting)
		}
		return body, nil
	}
}

func isProtobuf(req *http.Request) bool { return strings.HasSuffix(mediaType(req), "protobuf") }

// nestedDeeper reports whether data, read as a protobuf message, holds messages
// within messages on more than limit levels. Everything that can be read as a
// message counts as one. The time is linear in the size of data.
func nestedDeeper(data []byte, limit int) (deeper bool) {
	if limit < 0 {
		return true
	}
	protofields.Contents(data, func(content []byte) bool {
		deeper = nestedDeeper(content, limit-1)
		return !deeper
	})
	return deeper
}
