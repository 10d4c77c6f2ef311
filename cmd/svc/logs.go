package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
		return usageError{ofFlags(err), cmd}
	}
	return nil
}

// ofFlags names the flags instead of the fields in errors of the configuration of logs.
func ofFlags(err error) error {
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return fmt.Errorf("flags of the logs: %w", err)
	}
	var errs []error
	for _, err := range all.Errors() {
		var invalid *field.Error
		switch {
		case !errors.As(err, &invalid):
		case invalid.Field == "format":
			err = fmt.Errorf("--logging-format: %s; choose from text, json", invalid.ErrorBody())
		case invalid.Field == "verbosity":
			err = fmt.Errorf("--v: %s", invalid.ErrorBody())
		case strings.HasPrefix(invalid.Field, "vmodule"):
			err = fmt.Errorf("--vmodule: %s", invalid.ErrorBody())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
