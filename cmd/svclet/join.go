package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/fleetaddress"
	"svc.dev/svc/internal/jointoken"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/join"
)

// joinOptions are the flags of svclet join.
type joinOptions struct {
	token, dir, rootDir string
	pins                []string
	// connection is the connection file by which the machine joins, instead of a token.
	connection string
	// server is the API server's URL; more are the arguments that svclet gets besides.
	server string
	more   []string
	// domain is the group domain of the fleet to join, whose host the API server is; empty
	// for the cluster itself. fleet is the name of the fleet.
	domain, fleet string
	systemd       systemd
}

func newJoin(getenv func(string) string) *cobra.Command {
	o := &joinOptions{systemd: thisSystemd()}
	cmd := &cobra.Command{
		Use:   "join {https://HOST:6443 --token ID.KEY --ca-cert-hash sha256:HEX [--group-domain DOMAIN] | --svcconfig FILE} [-- SVCLET FLAGS]",
		Short: "Make this machine a node of a cluster",
		Long: `Make this machine a node of a cluster. "svc token create --print-join-command" prints the
command. It verifies the cluster by the token and the hash of its authority's public
key, writes the configuration of svclet, and starts svclet as a service of systemd.
On a machine without systemd svclet runs in the foreground.

With --group-domain the machine joins a fleet behind the cluster, its host. It is another
user than the host's own nodes are, and an administrator of the host approves the request
for its certificate ("kubectl certificate approve").

With --svcconfig the machine joins as the user of a connection file: a fleet behind a host
cluster, whose host knows the machine ("svc kubeconfig" prints the file). The file is
copied; the machine gets no certificate.

The flags after -- are added to svclet's, for example -- --node-ip=192.0.2.7.`,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.token, "token", "", "The bootstrap token, ID.KEY.")
	flags.StringSliceVar(&o.pins, "ca-cert-hash", nil, "The hash of the public key of the cluster's authority, sha256:HEX. It may be given several times.")
	flags.StringVar(&o.connection, "svcconfig", "", "Connection file of the machine, instead of a URL, --token and --ca-cert-hash.")
	flags.StringVar(&o.domain, "group-domain", "", "The group domain of the fleet to join: svc.dev, for example. Without it the machine joins the cluster itself.")
	flags.StringVar(&o.fleet, "fleet-name", "default", "With --group-domain: the name of the fleet.")
	flags.StringVar(&o.dir, "config-dir", join.DefaultDir, "Directory of the files that are written.")
	flags.StringVar(&o.rootDir, "root-dir", config.DefaultFlags().RootDir, "Root directory of svclet.")
	cmd.Args = func(_ *cobra.Command, args []string) error { return o.complete(args) }
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), getenv, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// complete checks the arguments and makes paths absolute.
func (o *joinOptions) complete(args []string) error {
	var errs []error
	if o.connection != "" {
		errs = o.completeConnection(args)
	} else {
		errs = o.completeToken(args)
	}
	for _, dir := range []*string{&o.dir, &o.rootDir} {
		absolute, err := filepath.Abs(*dir)
		errs = append(errs, err)
		*dir = absolute
	}
	return errors.Join(errs...)
}

func (o *joinOptions) completeConnection(args []string) []error {
	o.more = args
	var errs []error
	if o.token != "" || len(o.pins) > 0 {
		errs = append(errs, errors.New("--svcconfig: excludes --token and --ca-cert-hash; leave it out to join with a token"))
	}
	if o.domain != "" {
		errs = append(errs, errors.New("--svcconfig: the file names the fleet; leave --group-domain out"))
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		errs = append(errs, fmt.Errorf("--svcconfig: the file names the API server; leave %q out", args[0]))
	}
	return errs
}

func (o *joinOptions) completeToken(args []string) []error {
	if len(args) == 0 {
		return []error{errors.New("name the API server, as https://HOST:6443")}
	}
	server, err := url.Parse(args[0])
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return []error{fmt.Errorf("invalid API server %q: must be a URL, as https://HOST:6443", args[0])}
	}
	o.server, o.more = args[0], args[1:]
	var errs []error
	if _, _, err := jointoken.Parse(o.token); err != nil {
		errs = append(errs, fmt.Errorf("--token: %w", err))
	}
	if len(o.pins) == 0 {
		errs = append(errs, errors.New("--ca-cert-hash: give the hash that 'svc token create --print-join-command' prints"))
	}
	if o.domain != "" && (len(validation.IsDNS1123Subdomain(o.domain)) > 0 || len(validation.IsDNS1123Label(o.fleet)) > 0) {
		errs = append(errs, fmt.Errorf("--group-domain: invalid domain %q or name of a fleet %q: must be as those of its API servers", o.domain, o.fleet))
	}
	for _, pin := range o.pins {
		digits, found := strings.CutPrefix(pin, "sha256:")
		if hash, err := hex.DecodeString(digits); !found || err != nil || len(hash) != sha256.Size {
			errs = append(errs, fmt.Errorf("--ca-cert-hash: invalid hash %q: must be sha256: and 64 hexadecimal digits", pin))
		}
	}
	return errs
}

func (o *joinOptions) run(ctx context.Context, getenv func(string) string, out, errOut io.Writer) error {
	files := join.Files{Dir: o.dir}
	switch {
	case runtime.GOOS != "linux":
		return errors.New("only Linux runs pods")
	case os.Geteuid() != 0:
		return errors.New("only root can run pods")
	}
	if err := o.refuseSecond(files); err != nil {
		return err
	}
	args, err := o.write(ctx, files, out)
	if err != nil {
		return err
	}
	if _, err := config.Load(args, getenv); err != nil {
		return errors.Join(err, files.Remove())
	}
	args = o.withRelease(ctx, files, args, out)
	if err := files.WriteArguments(args); err != nil {
		return errors.Join(fmt.Errorf("--config-dir: %w", err), files.Remove())
	}
	if !o.systemd.runs {
		fmt.Fprintf(out, "systemd does not run here: svclet runs in the foreground. To start it again: svclet %s\n", strings.Join(args, " "))
		if code := run(args, getenv, out, errOut); code != 0 {
			return errors.New("svclet has failed; 'svclet reset' undoes the join")
		}
		return nil
	}
	if err := o.systemd.start(ctx, args); err != nil {
		return err
	}
	fmt.Fprintln(out, "svclet runs as a service of systemd; waiting for its connection file")
	if err := waitForFile(ctx, clock.RealClock{}, files.Connection()); err != nil {
		return err
	}
	fmt.Fprintln(out, "this machine has joined the cluster: 'svc kubectl get nodes' shows it when it is ready")
	return nil
}

// refuseSecond returns an error if the machine has joined a cluster, or waits for its certificate
// after a join: the svclet of that join uses the files, and may run.
func (o *joinOptions) refuseSecond(files join.Files) error {
	const undo = "this machine has joined a cluster already: %s exists; 'svclet reset --config-dir=%s' undoes that"
	for _, path := range []string{files.Connection(), files.ArgumentsFile()} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, fmt.Errorf(undo, path, files.Dir))
		}
	}
	args, err := o.systemd.arguments()
	if args == nil && err == nil {
		return nil
	}
	if first, found := join.FilesOf(args); found {
		return fmt.Errorf(undo, o.systemd.unitFile, first.Dir)
	}
	return errors.Join(err, fmt.Errorf("%s exists, and svclet join has not written it: stop its svclet and remove it by hand", o.systemd.unitFile))
}

// write writes the files, and returns the command line of svclet with them.
func (o *joinOptions) write(ctx context.Context, files join.Files, out io.Writer) ([]string, error) {
	if o.connection != "" {
		if err := files.Connect(o.connection); err != nil {
			return nil, fmt.Errorf("--svcconfig: %w", err)
		}
		return files.ConnectedArguments(o.rootDir, o.more), nil
	}
	id, key, err := jointoken.Parse(o.token)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "verifying the cluster at %s\n", o.server)
	retrying := func(err error, limit time.Duration) {
		fmt.Fprintf(out, "trying again for %s: %s\n", limit, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	authority, err := join.Discovery{Server: o.server, TokenID: id, TokenKey: key, Pins: o.pins, Clock: clock.RealClock{}, Retrying: retrying}.Authority(ctx)
	if err != nil {
		return nil, err
	}
	server := o.server
	if o.domain != "" {
		server = strings.TrimSuffix(server, "/") + fleetaddress.Path(fleetaddress.Group+"."+o.domain, o.fleet)
		fmt.Fprintln(out, "an administrator of the host approves the request of this machine: kubectl get csr, kubectl certificate approve NAME")
	}
	if err := files.Write(server, o.token, authority); err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	return files.Arguments(o.rootDir, o.more), nil
}

// withRelease returns the arguments of svclet with the release that it reports, that of an API
// server that is older than svclet. A --version among the arguments comes after it.
func (o *joinOptions) withRelease(ctx context.Context, files join.Files, args []string, out io.Writer) []string {
	connection := files.Bootstrap()
	if o.connection != "" {
		connection = files.Connection()
	}
	release, err := join.OlderRelease(ctx, connection, config.Release)
	if err != nil {
		fmt.Fprintf(out, "cannot read the release of the cluster, the node reports %s: %s\n", config.Release, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if release == "" {
		return args
	}
	return append([]string{"--version=" + release}, args...)
}

// joinTimeout is how long svclet may take to get its certificate: kubeadm's 5 minutes.
const joinTimeout = 5 * time.Minute

// waitForFile waits until a file exists.
func waitForFile(ctx context.Context, c clock.Clock, path string) error {
	limit := c.After(joinTimeout)
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit:
			return fmt.Errorf("svclet has no certificate after %s: 'journalctl --unit svclet' says why", joinTimeout)
		case <-c.After(time.Second):
		}
	}
}

// runCommand executes a command of svclet other than the agent.
func runCommand(root *cobra.Command, args []string, out, errOut io.Writer) int {
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the command at once
	executed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintf(errOut, "%s: %s\n", executed.CommandPath(), strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}
