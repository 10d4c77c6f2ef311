package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
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
	file, exists := pointAtUp(args)
	if file != "" && err == nil && !chosen.Obvious && chosen.Dir.InUse() { // else an error says it
		fmt.Fprintf(os.Stderr, "svc kubectl: using %s\n", chosen)
	}
	cmdutil.BehaviorOnFatal(func(message string, code int) {
		message = strings.TrimSuffix(message, "\n")
		if pointed := file != "" || noDefault(user, args); pointed && !slices.ContainsFunc(args, givesServer) && strings.Contains(message, "connection to the server") {
			message += "\nsvc kubectl: " + unreachable(file, exists) + ": start \"svc up\", or name a cluster by --kubeconfig or KUBECONFIG" + sudoHint(datadir.Dir(filepath.Dir(file)))
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
	cmdutil.CheckErr(cli.RunNoErrOutput(kubectlCommand(arguments)))
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

func kubectlCommand(arguments []string) *cobra.Command {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if slices.Contains(arguments, "version") {
		streams.ErrOut = withoutSkew{os.Stderr}
	}
	kubectl := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		PluginHandler: cmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     arguments,
		ConfigFlags: genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().
			WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams),
		IOStreams: streams,
	})
	kubectl.SetArgs(arguments[1:])
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
	if u.Env(clientcmd.RecommendedConfigPathEnvVar) != "" || slices.ContainsFunc(args, givesKubeconfig) {
		return "", false
	}
	return u.FindAdminFile()
}

// noDefault reports whether neither args nor the environment names a cluster, and the
// user has no directory in which svc up would leave the name of one.
func noDefault(u datadir.User, args []string) bool {
	file, _ := kubeconfigFor(u, args)
	return file == "" && u.Env(clientcmd.RecommendedConfigPathEnvVar) == "" && !slices.ContainsFunc(args, givesKubeconfig)
}

func givesKubeconfig(arg string) bool {
	return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=")
}

func givesServer(arg string) bool {
	return arg == "-s" || arg == "--server" || strings.HasPrefix(arg, "--server=")
}

// completeKubectl returns kubectl's completions of a line that begins with svc kubectl.
func completeKubectl(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	pointAtUp(args)
	var answer strings.Builder
	kubectl := kubectlCommand(slices.Concat([]string{"kubectl", cobra.ShellCompRequestCmd}, args, []string{toComplete}))
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
