package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"svc.dev/svc/apiserver/release"
	_ "svc.dev/svc/cmd/svc/translations" // loads those of kubectl for kubectl only
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/internal/releases"
)

func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl COMMAND",
		Short: "Run kubectl, which is built in",
		Long: `Run kubectl, which is built in. Without --kubeconfig and KUBECONFIG it talks to
the "svc up" of this user.`,
		DisableFlagParsing: true, // the flags are kubectl's
		RunE: func(_ *cobra.Command, args []string) error {
			runKubectl(args)
			return nil
		},
		ValidArgsFunction: completeKubectl,
	}
}

// runKubectl runs kubectl, and exits with its exit code if that is not 0.
func runKubectl(args []string) {
	user := datadir.CurrentUser()
	chosen, err := user.Choose("")
	named := user.Env(clientcmd.RecommendedConfigPathEnvVar)
	file, exists := pointAtUp(args)
	if file != "" && err == nil && !chosen.Obvious && chosen.Dir.InUse() { // else an error says it
		fmt.Fprintf(os.Stderr, "svc kubectl: using %s\n", chosen)
	}
	hint := func() string { return clusterHint(args, named, file, exists) }
	dropUnreachable()
	pointed := named == "" && !givesKubeconfig(args) && !givesServer(args)
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		message = strings.TrimSuffix(message, "\n")
		switch {
		case strings.Contains(message, hint()):
			message = "svc kubectl: " + hint()
		case pointed && strings.Contains(message, "connection to the server"):
			message += "\nsvc kubectl: " + hint()
		}
		for _, hint := range removedKinds(message) {
			message += "\nsvc kubectl: " + hint
		}
		if message != "" {
			fmt.Fprintln(os.Stderr, message)
		}
		os.Exit(code)
	})
	// Not those of svc: kubectl's own commands end, or clean up, by a signal.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	arguments := append([]string{"kubectl"}, args...)
	logs.GlogSetter(cmd.GetLogVerbosity(arguments)) //nolint:errcheck // kubectl checks the flag again
	cmdutil.CheckErr(cli.RunNoErrOutput(kubectlCommand(arguments, hint)))
}

// withoutDefaultServer returns a change of kubectl's configuration: without a kubeconfig
// kubectl sends requests to localhost:8080, where any program may listen. Instead they
// fail with the hint, unless --server or a cluster of the kubeconfig is that server.
func withoutDefaultServer(flags *genericclioptions.ConfigFlags, hint func() string) func(*rest.Config) *rest.Config {
	return func(c *rest.Config) *rest.Config {
		if c.Host == defaultServer && *flags.APIServer == "" && !hasCluster(flags, defaultServer) {
			c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, noCluster(hint()) }
		}
		return c
	}
}

// hasCluster reports whether the kubeconfig of the flags has a cluster with a server.
func hasCluster(flags *genericclioptions.ConfigFlags, server string) bool {
	config, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return false
	}
	for _, cluster := range config.Clusters {
		if cluster.Server == server {
			return true
		}
	}
	return false
}

// defaultServer is the server of a kubectl without a kubeconfig (clientcmd.ClusterDefaults).
const defaultServer = "http://localhost:8080"

// noCluster is the error of requests when there is no cluster: what to do about it.
type noCluster string

func (e noCluster) Error() string { return string(e) }

// dropUnreachable makes the libraries log errors unlessUnreachable.
func dropUnreachable() {
	for i, handle := range utilruntime.ErrorHandlers {
		utilruntime.ErrorHandlers[i] = unlessUnreachable(handle)
	}
}

// unlessUnreachable drops the errors of a server that does not answer, which precede the
// error of the command and repeat it.
func unlessUnreachable(handle utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, message string, keysAndValues ...any) {
		if none := noCluster(""); !utilnet.IsConnectionRefused(err) && !errors.As(err, &none) {
			handle(ctx, err, message, keysAndValues...)
		}
	}
}

// withoutSkew drops the warning of kubectl version that the server has another minor
// version than kubectl: this kubectl is the one that svc is tested with, at each release.
type withoutSkew struct{ io.Writer }

func (w withoutSkew) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("version difference between client")) {
		return len(text), nil
	}
	return w.Writer.Write(text)
}

// noMatch is kubectl's message for a kind that the server does not serve.
var noMatch = regexp.MustCompile(`no matches for kind "([^"]+)" in version "([^"]+)"`)

// removedKinds returns what to do about the kinds in a message of kubectl that some
// release of Kubernetes has removed, each once.
func removedKinds(message string) []string {
	found := noMatch.FindAllStringSubmatch(message, -1)
	if found == nil {
		return nil
	}
	table, err := releases.LoadKinds()
	if err != nil {
		return nil // kubectl's message stays as it is
	}
	var hints []string
	for _, match := range found {
		gvk := schema.FromAPIVersionAndKind(match[2], match[1])
		if hint := release.RemovedKind(table, gvk, release.Newest); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	return hints
}

// clusterHint says what to do when no server answers, or none is named: by --kubeconfig, by
// the KUBECONFIG named, or else by the file of svc up that was chosen for the user.
func clusterHint(args []string, named, file string, exists bool) string {
	switch {
	case givesKubeconfig(args):
		return "--kubeconfig: the file names no server: name that of a cluster, or a server by --server"
	case named != "":
		return fmt.Sprintf("KUBECONFIG: %s does not exist or names no server: correct the path, or unset KUBECONFIG to use your svc up", named)
	default:
		return fmt.Sprintf("%s: start \"svc up\", or name a cluster by --kubeconfig or KUBECONFIG%s", unreachable(file, exists), sudoHint(datadir.Dir(filepath.Dir(file))))
	}
}

// unreachable says which kubeconfig was chosen, and why its server does not answer.
func unreachable(file string, exists bool) string {
	switch dir := datadir.Dir(filepath.Dir(file)); {
	case file == "":
		return "there is no default cluster without HOME"
	case !exists:
		return file + " does not exist"
	case !dir.InUse():
		return "no svc up runs on " + string(dir)
	default:
		return "the svc up on " + string(dir) + " does not answer"
	}
}

// kubectlCommand returns kubectl, whose requests fail with the hint if there is no cluster.
func kubectlCommand(arguments []string, hint func() string) *cobra.Command {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if slices.Contains(arguments, "version") {
		streams.ErrOut = withoutSkew{os.Stderr}
	}
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
		WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams)
	flags.WrapConfigFn = withoutDefaultServer(flags, hint)
	kubectl := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		PluginHandler: cmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     arguments,
		ConfigFlags:   flags,
		IOStreams:     streams,
	})
	// Not by SetArgs: kubectl has set its own, if an alias of a kuberc file adds some.
	os.Args = arguments
	return kubectl
}

// pointAtUp makes kubectl and its plugins use the cluster of this user's svc up,
// unless the user names a kubeconfig. ~/.kube/config is not used: which cluster
// `svc kubectl delete` deletes from must not depend on whether svc up has ever
// run beside another cluster.
//
// It returns the kubeconfig that it chose, if any, and whether it exists.
func pointAtUp(args []string) (file string, exists bool) {
	if file, exists = kubeconfigFor(datadir.CurrentUser(), args); file != "" {
		os.Setenv(clientcmd.RecommendedConfigPathEnvVar, file)
	}
	return file, exists
}

func kubeconfigFor(u datadir.User, args []string) (file string, exists bool) {
	if u.Env(clientcmd.RecommendedConfigPathEnvVar) != "" || givesKubeconfig(args) {
		return "", false
	}
	return u.FindAdminFile()
}

// noDefault reports whether neither args nor the environment names a cluster, and the
// user has no directory in which svc up would leave the name of one.
func noDefault(u datadir.User, args []string) bool {
	file, _ := kubeconfigFor(u, args)
	return file == "" && u.Env(clientcmd.RecommendedConfigPathEnvVar) == "" && !givesKubeconfig(args)
}

func givesKubeconfig(args []string) bool {
	return slices.ContainsFunc(ownArguments(args), func(arg string) bool {
		return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=")
	})
}

func givesServer(args []string) bool {
	return slices.ContainsFunc(ownArguments(args), func(arg string) bool {
		return arg == "-s" || arg == "--server" || strings.HasPrefix(arg, "--server=")
	})
}

// ownArguments returns the arguments that kubectl reads itself: those after -- are of the
// program in a container (exec, run) or of a plugin.
func ownArguments(args []string) []string {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i]
	}
	return args
}

// completeKubectl returns kubectl's completions of a line that begins with svc kubectl.
func completeKubectl(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	pointAtUp(args)
	dropUnreachable()
	var answer strings.Builder
	kubectl := kubectlCommand(slices.Concat([]string{"kubectl", cobra.ShellCompRequestCmd}, args, []string{toComplete}), func() string { return "there is no cluster" })
	kubectl.SetOut(&answer)
	if err := kubectl.Execute(); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// One completion a line, then :<directive>.
	lines := strings.Split(strings.TrimSpace(answer.String()), "\n")
	directive := cobra.ShellCompDirectiveDefault
	if _, err := fmt.Sscanf(lines[len(lines)-1], ":%d", &directive); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:len(lines)-1], directive
}
