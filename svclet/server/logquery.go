package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
)

// logQuery is a query for the logs of services, or for one file (KEP-2258).
type logQuery struct {
	services, files []string
	since, until    *time.Time
	tail, boot      *int
	pattern         string
}

// hasOptions reports whether the query has parameters that files do not have.
func (q *logQuery) hasOptions() bool {
	return q.since != nil || q.until != nil || q.tail != nil || q.boot != nil || q.pattern != ""
}

// The bounds of a query, as those of the kubelet.
const (
	maxTailLines   = 100_000
	maxServices    = 4
	maxServiceName = 256 // the length
	queryTimeout   = 30 * time.Second
)

// errQueryTimeout ends a query of services.
var errQueryTimeout = fmt.Errorf("it took more than %s", queryTimeout)

// parseLogQuery reads the parameters of a request; nil if it has none of a query.
func parseLogQuery(values url.Values) (*logQuery, field.ErrorList) {
	q := &logQuery{pattern: values.Get("pattern")}
	var errs field.ErrorList
	for _, name := range values["query"] {
		switch {
		case strings.ContainsAny(name, `/\`): // a file
			q.files = append(q.files, name)
		case strings.TrimSpace(name) != "":
			q.services = append(q.services, name)
		}
	}
	if values.Has("query") && len(q.files)+len(q.services) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("query"), values["query"], "query cannot be empty"))
	}
	for name, at := range map[string]**time.Time{"sinceTime": &q.since, "untilTime": &q.until} {
		if text := values.Get(name); text != "" {
			parsed, err := time.Parse(time.RFC3339, text)
			if err != nil {
				errs = append(errs, field.Invalid(field.NewPath(name), text, "invalid time format"))
				continue
			}
			*at = &parsed
		}
	}
	for name, at := range map[string]**int{"tailLines": &q.tail, "boot": &q.boot} {
		if text := values.Get(name); text != "" {
			parsed, err := strconv.Atoi(text)
			if err != nil {
				errs = append(errs, field.Invalid(field.NewPath(name), text, err.Error()))
				continue
			}
			*at = &parsed
		}
	}
	if len(errs) > 0 || len(q.files)+len(q.services) == 0 && !q.hasOptions() {
		return nil, errs
	}
	return q, nil
}

// serviceName allows the names of systemd's units, and none that journalctl could take
// for an option.
var serviceName = regexp.MustCompile(`^[a-zA-Z0-9_.:@][a-zA-Z0-9_.:@-]*$`)

// validate checks a query. Files are below directory.
func (q *logQuery) validate(directory string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("query")
	switch both := fmt.Sprintf("%v, %v", q.files, q.services); {
	case len(q.files)+len(q.services) == 0:
		errs = append(errs, field.Required(path, "cannot be empty with options"))
	case len(q.files) > 0 && len(q.services) > 0:
		errs = append(errs, field.Invalid(path, both, "cannot specify a file and service"))
	case len(q.files) > 1:
		errs = append(errs, field.Invalid(path, both, "cannot specify more than one file"))
	case len(q.files) == 1 && q.hasOptions():
		errs = append(errs, field.Invalid(path, both, "cannot specify file with options"))
	case len(q.files) == 1:
		file, err := within(directory).Open(filePath(q.files[0]))
		if err != nil {
			errs = append(errs, field.Invalid(path, q.files[0], err.Error()))
		} else {
			file.Close()
		}
	}
	if q.since != nil && q.until != nil && q.since.After(*q.until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.until.Format(time.RFC3339), "must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.tail != nil && (*q.tail < 0 || *q.tail > maxTailLines) {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.tail, fmt.Sprintf("must be between 0 and %d", maxTailLines)))
	}
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.pattern, err.Error()))
	}
	if len(q.services) > maxServices {
		errs = append(errs, field.TooMany(path, len(q.services), maxServices))
	}
	for _, name := range q.services {
		switch {
		case len(name) > maxServiceName:
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("length must be less than %d", maxServiceName)))
		case !serviceName.MatchString(name):
			errs = append(errs, field.Invalid(path, name, "input contains unsupported characters"))
		}
	}
	return errs
}

// filePath returns the path of a queried file below the directory of logs.
func filePath(name string) string {
	return strings.TrimPrefix(filepath.ToSlash(filepath.Clean("/"+strings.ReplaceAll(name, `\`, "/"))), "/")
}

// queriedLogs answers queries, and serves all other requests as files does.
func (s *Server) queriedLogs(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, errs := parseLogQuery(r.URL.Query())
		switch {
		case len(errs) > 0:
			http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
			return
		case q == nil:
			files.ServeHTTP(w, r)
			return
		case r.URL.Path != "" && r.URL.Path != "/":
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
			return
		}
		if errs := q.validate(s.o.LogDirectory); len(errs) > 0 {
			http.Error(w, errs.ToAggregate().Error(), http.StatusNotAcceptable)
			return
		}
		if len(q.services) > 0 {
			s.serviceLogs(w, r, q)
			return
		}
		of := r.Clone(r.Context())
		of.URL.Path = "/" + filePath(q.files[0])
		files.ServeHTTP(w, of)
	})
}

// serviceLogs writes the logs of services: those in systemd's journal and, of services that
// have none there, the files that are named after them. It ends after queryTimeout.
func (s *Server) serviceLogs(w http.ResponseWriter, r *http.Request, q *logQuery) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), queryTimeout, errQueryTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	out := &flushing{w: w, to: http.NewResponseController(w)}
	journal := *q
	journal.services = nil
	for _, name := range q.services {
		found := s.isInJournal(ctx, name)
		if ctx.Err() != nil {
			fmt.Fprintf(out, "\nfailed to get logs for %s: %v\n", name, context.Cause(ctx))
			return
		}
		if found {
			journal.services = append(journal.services, name)
			continue
		}
		if err := s.copyServiceFile(ctx, out, name, q); err != nil {
			fmt.Fprintf(out, "\nfailed to get logs for %s: %v\n", name, err)
		}
	}
	if len(journal.services) == 0 {
		return
	}
	if err := s.parts.Journal(ctx, journal.arguments(), out); err != nil && r.Context().Err() == nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		klog.FromContext(ctx).Error(err, "Failed to read the journal", "units", journal.services)
		fmt.Fprintf(out, "\nfailed to read the journal: %v\n", err)
	}
}

// isInJournal reports whether systemd's journal has entries of a service.
func (s *Server) isInJournal(ctx context.Context, name string) bool {
	found := &firstByte{}
	// The exit code does not say whether there are entries.
	_ = s.parts.Journal(ctx, []string{"--unit=" + name, "--lines=1", "--quiet", "--no-pager", "--output=cat"}, found)
	return found.written
}

// firstByte is a writer that knows whether it was written to.
type firstByte struct{ written bool }

func (f *firstByte) Write(p []byte) (int, error) {
	f.written = f.written || len(p) > 0
	return len(p), nil
}

// arguments returns journalctl's.
func (q *logQuery) arguments() []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil {
		args = append(args, "--since="+q.since.UTC().Format(time.DateTime))
	}
	if q.until != nil {
		args = append(args, "--until="+q.until.UTC().Format(time.DateTime))
	}
	if q.tail != nil {
		args = append(args, "--lines="+strconv.Itoa(*q.tail))
	}
	for _, name := range q.services {
		args = append(args, "--unit="+name)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.boot))
	}
	return args
}

// copyServiceFile writes the file with the log of a service: NAME, NAME.log or
// NAME/NAME.log in the directory of logs. Of the options, it knows none: a log file has no
// structure.
func (s *Server) copyServiceFile(ctx context.Context, out io.Writer, name string, q *logQuery) error {
	for _, path := range []string{name, name + ".log", name + "/" + name + ".log"} {
		file, err := within(s.o.LogDirectory).Open(path)
		if err != nil {
			continue
		}
		defer file.Close()
		if info, err := file.Stat(); err != nil || info.IsDir() {
			continue
		}
		if q.hasOptions() {
			return errors.New("it logs to a file: options are for services that log to the journal")
		}
		defer context.AfterFunc(ctx, func() { file.Close() })() // ends the copy
		if _, err = io.Copy(out, file); ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	return fmt.Errorf("journal and %s have no logs of it", s.o.LogDirectory)
}

// Journalctl runs journalctl, and writes what it prints.
func Journalctl(ctx context.Context, args []string, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}
