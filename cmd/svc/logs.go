package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"svc.dev/svc/apiserver/filters/disconnect"
	"svc.dev/svc/apiserver/patcherror"
	"svc.dev/svc/internal/logbodies"
)

const logFlags = "logs"

func addLogFlags(sets *cliflag.NamedFlagSets, logging *logsapi.LoggingConfiguration) {
	logsapi.AddFlags(logging, sets.FlagSet(logFlags))
}

// startLogs directs all logs to out. It is done once in a process.
func startLogs(cmd *cobra.Command, logging *logsapi.LoggingConfiguration, out io.Writer) error {
	logs.InitLogs()
	ctrllog.SetLogger(klog.Background())
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{disconnect.ErrorHandler(patcherror.ErrorHandler(utilruntime.ErrorHandlers...))}
	out = logbodies.Drop(withoutMisfits{out})
	if err := logsapi.ValidateAndApplyWithOptions(logging, &logsapi.LoggingOptions{ErrorStream: out, InfoStream: out}, nil); err != nil {
		return usageError{fmt.Errorf("flags of the logs: %w", err), cmd}
	}
	return nil
}

// withoutMisfits drops the library's error about custom resources that do not fit
// their schema: it computes who owns their fields before it validates them, and the
// client gets the error of the validation. Another reason of the same error, such as
// a webhook that does not convert, stays.
type withoutMisfits struct{ out io.Writer }

// Write expects one whole line, as loggers write them.
func (w withoutMisfits) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("failed to update managedFields")) && bytes.Contains(line, []byte(" to smd typed: ")) {
		return len(line), nil
	}
	return w.out.Write(line)
}

// warnings passes only warnings and errors of a log in klog's text format.
type warnings struct {
	out io.Writer
	// muted drops all lines. It is set when the components are being stopped,
	// because they then log errors about each other that are expected.
	muted *atomic.Bool
}

// Write expects one whole line, as loggers write them.
func (w warnings) Write(line []byte) (int, error) {
	if w.muted.Load() || bytes.HasPrefix(line, []byte("I")) || slices.ContainsFunc(expected, func(text string) bool { return bytes.Contains(line, []byte(text)) }) {
		return len(line), nil
	}
	return w.out.Write(line)
}

// expected are parts of lines that libraries log as warnings or errors although
// nothing is wrong.
var expected = []string{
	"because it has no resources",          // every start, of versions that are not served
	"Terminating all watchers from cacher", // every stop
	"Error on socket receive",              // every end of an exec
	// Mistakes of clients of exec, attach and port-forward, who get the error.
	"error executing command in container",
	"error attaching to container",
	"error forwarding port",
}
