package stream

import (
	"context"
	"errors"
	"io"

	"k8s.io/klog/v2"
)

// noteClient logs that a client disconnected before its command ended, which is
// not an error.
func noteClient(ctx context.Context, err error) {
	klog.FromContext(ctx).V(4).Info("Client disconnected before the command ended", "err", err)
}

// clientReader is a stream from a client. It ends when the client disconnects.
type clientReader struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (r *clientReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		noteClient(r.ctx, err)
		err = io.EOF
	}
	return n, err
}

// clientWriter is a stream to a client. What is written after the client has
// disconnected is dropped: the library would log an error, and the end of the
// connection ends the command.
type clientWriter struct {
	ctx  context.Context
	to   io.Writer
	gone bool
}

// Write implements io.Writer.
func (w *clientWriter) Write(p []byte) (int, error) {
	if w.gone {
		return len(p), nil
	}
	if _, err := w.to.Write(p); err != nil {
		noteClient(w.ctx, err)
		w.gone = true
	}
	return len(p), nil
}
