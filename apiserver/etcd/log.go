package etcd

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// newLogger returns the logger of etcd. For fatal and panic entries, f stores the
// error and ends the goroutine, not the process.
func newLogger(core *logCore, f *failure) *zap.Logger {
	return zap.New(core, zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// logCore is a zapcore.Core that writes to klog. etcd's warnings are hints on
// performance and configuration; operators see them only at a higher verbosity.
type logCore struct {
	to klog.Logger
	// serving is set while the member is started. Errors are written as such only
	// then: those of the start are returned to the caller, and during the stop etcd
	// logs each listener that closes as an error.
	serving *atomic.Bool
}

func newLogCore(to klog.Logger) *logCore {
	return &logCore{to: to, serving: new(atomic.Bool)}
}

// harmless are messages that etcd logs as errors in normal operation.
var harmless = map[string]bool{
	// The first start of a member: the term is written a moment later, and the
	// version with it.
	"failed to update storage version": true,
}

func (c *logCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.ErrorLevel || c.to.V(verbosity(level)).Enabled()
}

func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{to: c.to.WithValues(keysAndValues(fields)...), serving: c.serving}
}

func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	switch {
	case entry.Level > zapcore.ErrorLevel: // failure returns it to the caller
	case entry.Level == zapcore.ErrorLevel && (!c.serving.Load() || harmless[entry.Message]):
		c.to.V(verbosity(zapcore.InfoLevel)).Info(entry.Message, append(keysAndValues(fields), "err", errorOf(fields))...)
	case entry.Level == zapcore.ErrorLevel:
		c.to.Error(errorOf(fields), entry.Message, keysAndValues(fields)...)
	default:
		c.to.V(verbosity(entry.Level)).Info(entry.Message, keysAndValues(fields)...)
	}
	return nil
}

func (c *logCore) Sync() error {
	return nil
}

func verbosity(level zapcore.Level) int {
	switch level {
	case zapcore.DebugLevel:
		return 6
	case zapcore.InfoLevel:
		return 4
	default:
		return 2
	}
}

// confidential is the field of a request with the objects that it writes, secrets among
// them.
const confidential = "raftReq"

// keysAndValues returns the fields but errors, and what is confidential.
func keysAndValues(fields []zapcore.Field) []any {
	kv := make([]any, 0, 2*len(fields))
	for _, field := range fields {
		if field.Type == zapcore.ErrorType || field.Key == confidential {
			continue
		}
		enc := zapcore.NewMapObjectEncoder()
		field.AddTo(enc)
		for key, value := range enc.Fields {
			kv = append(kv, key, value)
		}
	}
	return kv
}

func errorOf(fields []zapcore.Field) error {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return err
		}
	}
	return nil
}

// failure is the first error that etcd cannot continue after. It is the hook of
// etcd's logger for fatal and panic entries.
type failure struct {
	dir   string
	c     chan error
	mu    sync.Mutex
	first error
}

func newFailure(dir string) *failure {
	return &failure{dir: dir, c: make(chan error, 1)}
}

// OnWrite implements zapcore.CheckWriteHook. It stores the error and ends the
// goroutine that logged it: a hook must not return.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("etcd: %s", entry.Message)
	if cause := errorOf(fields); cause != nil {
		err = &fatalError{message: entry.Message, cause: cause}
	}
	f.mu.Lock()
	if f.first == nil {
		f.first = explain(f.dir, err)
		f.c <- f.first
	}
	f.mu.Unlock()
	runtime.Goexit()
}

// fatalError is an error that etcd cannot continue after.
type fatalError struct {
	message string
	cause   error
}

func (e *fatalError) Error() string { return fmt.Sprintf("etcd: %s: %v", e.message, e.cause) }
func (e *fatalError) Unwrap() error { return e.cause }

func (f *failure) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}
