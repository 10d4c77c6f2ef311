package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"svc.dev/svc/internal/fleetaddress"
	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/podnetwork/plan"
)

// DefaultDir is the directory of the files of a machine that has joined.
const DefaultDir = "/etc/svclet"

// UnitFile is systemd's unit of svclet.
const UnitFile = "/etc/systemd/system/svclet.service"

// Files are the paths of the files of a machine that has joined, in a directory.
type Files struct{ Dir string }

// Bootstrap is the connection file with the token; Connection is the one that svclet
// writes with it. Authority has the certificates of the cluster's authority.
func (f Files) Bootstrap() string  { return filepath.Join(f.Dir, "bootstrap.svcconfig") }
func (f Files) Connection() string { return filepath.Join(f.Dir, "node.svcconfig") }
func (f Files) Authority() string  { return filepath.Join(f.Dir, "ca.crt") }

// Configuration is the configuration file, which an administrator may change.
func (f Files) Configuration() string { return filepath.Join(f.Dir, "svclet.yaml") }

// ArgumentsFile has the command line of svclet, with which a reset finds what svclet has
// made.
func (f Files) ArgumentsFile() string { return filepath.Join(f.Dir, "arguments.json") }

// Joined reports whether the machine has joined a cluster.
func (f Files) Joined() bool {
	_, err := os.Stat(f.Connection())
	return err == nil
}

// configuration is that of a node whose server authenticates and authorizes clients by
// the API server, and whose certificates are renewed.
const configuration = fleetConfiguration + "serverTLSBootstrap: true\n"

// connectedConfiguration is that of a node that connects as the user of a connection file:
// no certificate authority of the cluster knows it.
const connectedConfiguration = `apiVersion: svclet.config.k8s.io/v1beta1
kind: SvcletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
authorization: {mode: Webhook}
readOnlyPort: 0
`

// fleetConfiguration is that of a machine of a fleet that has joined by a token of the host:
// the host's authority signs the certificates of clients, and its administrators approve
// those of the machine.
const fleetConfiguration = `apiVersion: svclet.config.k8s.io/v1beta1
kind: SvcletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: ca.crt}
authorization: {mode: Webhook}
readOnlyPort: 0
rotateCertificates: true
`

// Connect writes the files for a cluster that a connection file names: a copy of the file's
// current context, with the contents of the files that it names. It keeps a configuration
// file that exists.
func (f Files) Connect(connection string) error {
	config, err := clientcmd.LoadFromFile(connection)
	if err == nil {
		err = clientcmdapi.MinifyConfig(config) // to the current context
	}
	if err == nil {
		err = clientcmd.ResolveLocalPaths(config)
	}
	if err == nil {
		err = clientcmdapi.FlattenConfig(config)
	}
	if err == nil {
		err = clientcmd.ConfirmUsable(*config, "")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", connection, err)
	}
	if err := f.writeKubeconfig(f.Connection(), config); err != nil {
		return err
	}
	return f.writeConfiguration(connectedConfiguration)
}

// writeConfiguration writes the configuration file unless it exists.
func (f Files) writeConfiguration(content string) error {
	if _, err := os.Stat(f.Configuration()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return checkpoint.ReplaceMode(f.Configuration(), []byte(content), 0o644)
}

// writeKubeconfig writes a connection file, and the directory before it if there is none.
// As every file here it is on the disk when the machine has joined: a power failure must not
// leave an empty one.
func (f Files) writeKubeconfig(path string, config *clientcmdapi.Config) error {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	return errors.Join(checkpoint.Replace(path, content), checkpoint.Sync(filepath.Dir(f.Dir)))
}

// Write writes the files for a cluster with this server, which may be the own address of a
// fleet, and authority. It keeps a configuration file that exists.
func (f Files) Write(server, token string, authority []byte) error {
	const name = "default"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := f.writeKubeconfig(f.Bootstrap(), config); err != nil {
		return err
	}
	if err := checkpoint.ReplaceMode(f.Authority(), authority, 0o644); err != nil {
		return err
	}
	if fleetaddress.IsAddress(server) {
		return f.writeConfiguration(fleetConfiguration)
	}
	return f.writeConfiguration(configuration)
}

// WriteArguments writes the command line of svclet. [Files.Remove] removes it.
func (f Files) WriteArguments(args []string) error {
	content, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return checkpoint.Replace(f.ArgumentsFile(), append(content, '\n'))
}

// ReadArguments returns the command line that was written; nil if none was.
func (f Files) ReadArguments() (args []string, err error) {
	content, err := os.ReadFile(f.ArgumentsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &args)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.ArgumentsFile(), err)
	}
	return args, nil
}

// Remove removes the files, and the directory if it is empty then. A configuration file
// that the administrator has written or changed stays.
func (f Files) Remove() error {
	content, err := os.ReadFile(f.Configuration())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	paths := []string{f.Bootstrap(), f.Connection(), f.Authority(), f.ArgumentsFile()}
	if slices.Contains([]string{configuration, connectedConfiguration, fleetConfiguration}, string(content)) {
		paths = append(paths, f.Configuration())
	}
	var errs []error
	for _, path := range paths {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if entries, err := os.ReadDir(f.Dir); err == nil && len(entries) == 0 {
		errs = append(errs, os.Remove(f.Dir))
	}
	return errors.Join(errs...)
}

// Arguments returns the command line of svclet with these files, which [Files.Write] has
// written. more is appended to it.
func (f Files) Arguments(rootDir string, more []string) []string {
	return f.ConnectedArguments(rootDir, append([]string{"--bootstrap-svcconfig=" + f.Bootstrap()}, more...))
}

// ConnectedArguments is Arguments of files that [Files.Connect] has written.
func (f Files) ConnectedArguments(rootDir string, more []string) []string {
	return append([]string{
		"--config=" + f.Configuration(), "--svcconfig=" + f.Connection(),
		"--root-dir=" + rootDir, "--cert-dir=" + filepath.Join(rootDir, "pki"), "--service-proxy", "--network-policy", "--dns", "--pod-network=" + plan.HostRoutes,
	}, more...)
}

// Unit returns systemd's unit that runs a program with a command line. Pods keep running
// when it stops.
func Unit(program string, args []string) string {
	return fmt.Sprintf(`[Unit]
Description=svclet, the node agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=%s
Restart=always
RestartSec=5
KillMode=process
Delegate=yes
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`, commandLine(append([]string{program}, args...)))
}

// UnitArguments returns the command line, without the program, that [Unit] has written into a
// unit. It returns an error for one that Unit does not write.
func UnitArguments(unit string) ([]string, error) {
	const key = "\nExecStart="
	_, line, _ := strings.Cut(unit, key)
	line, _, _ = strings.Cut(line, "\n")
	var words []string
	var word strings.Builder
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted:
			words = append(words, word.String())
			word.Reset()
		case strings.IndexByte(`\$%`, c) >= 0 && i+1 < len(line):
			i++
			fallthrough
		default:
			word.WriteByte(line[i])
		}
	}
	words = append(words, word.String())
	if strings.Count(unit, key) != 1 || commandLine(words) != line {
		return nil, errors.New("its ExecStart= is not as svclet join writes it")
	}
	return words[1:], nil
}

// FilesOf returns the files of the join that has made a command line, and whether one has.
func FilesOf(args []string) (Files, bool) {
	const flag = "--config="
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if i < 0 {
		return Files{}, false
	}
	f := Files{Dir: filepath.Dir(strings.TrimPrefix(args[i], flag))}
	return f, args[i] == flag+f.Configuration() && slices.Contains(args, "--svcconfig="+f.Connection())
}

// commandLine quotes the words of a command line for systemd.
func commandLine(words []string) string {
	quoted := make([]string, 0, len(words))
	for _, word := range words {
		quoted = append(quoted, quote(word))
	}
	return strings.Join(quoted, " ")
}

// quote quotes a word of a command line for systemd, which expands $ and %.
func quote(word string) string {
	word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", "$$", "%", "%%").Replace(word)
	if word == "" || strings.ContainsAny(word, " \t;'\"") {
		return `"` + word + `"`
	}
	return word
}
