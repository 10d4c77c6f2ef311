package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Patience bounds each thing that a suite waits for: a start, an end, a change.
// Each takes about a second, and on a loaded machine much longer; that it never
// happens is all that is to be found out.
const Patience = 3 * time.Minute

// Server is a running `svc up`.
type Server struct {
	*Process
	// DataDir is the server's data directory.
	DataDir string
	// Kubeconfig is the administrator's kubeconfig.
	Kubeconfig string
	// Config is Kubeconfig, read.
	Config *rest.Config
}

// WithoutControllers returns the flags of a server that runs no controllers. No
// controller creates service accounts then, so pods are not required to have one; and
// none removes the finalizers of claims, volumes and pod groups, so they get none.
func WithoutControllers(flags ...string) []string {
	return append([]string{"--controllers=", "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection,PodGroupProtection"}, flags...)
}

// Up starts `svc up` on a data directory and a free port, with further flags,
// and returns when it is ready.
func Up(ctx context.Context, dataDir string, flags ...string) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	return UpAt(ctx, dataDir, port, flags...)
}

// UpAt is Up on a given port.
func UpAt(ctx context.Context, dataDir, port string, flags ...string) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	s := &Server{DataDir: dataDir, Kubeconfig: filepath.Join(dataDir, "admin.svcconfig")}
	// The last of several flags counts: suites of nodes set one.
	args := append([]string{"up", "--data-dir=" + dataDir, "--secure-port=" + port, "--node=false"}, flags...)
	if s.Process, err = Start(nil, binary, args...); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx, "https://127.0.0.1:"+port); err != nil {
		s.Kill()
		return nil, fmt.Errorf("svc up: %w\n%s", err, s.Output())
	}
	return s, nil
}

// awaitReady waits until /readyz answers 200 at the URL and the server has said
// so (it may be stopped in order from then on), and sets Config.
func (s *Server) awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.Exited():
			return false, fmt.Errorf("it ended before it was ready")
		default:
		}
		// The file of an earlier run names an earlier port: it counts once it names this one.
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		if err != nil {
			last = err
			return false, nil
		}
		if config.Host != url {
			last = fmt.Errorf("%s names %s, not %s", s.Kubeconfig, config.Host, url)
			return false, nil
		}
		config.QPS = -1
		s.Config = config
		status, body, err := s.Get(ctx, "/readyz")
		switch last = err; {
		case err == nil && status != http.StatusOK:
			last = fmt.Errorf("/readyz answers %d: %s", status, body)
		case err == nil && !strings.Contains(s.Output(), url):
			last = fmt.Errorf("it has not said yet that it serves at %s", url)
		}
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// Get reads a path as the administrator.
func (s *Server) Get(ctx context.Context, path string) (status int, body string, err error) {
	return Get(ctx, s.Config, path)
}

// Get reads a path with the credentials of config.
func Get(ctx context.Context, config *rest.Config, path string) (status int, body string, err error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

// TempDir creates a directory that is short enough to hold unix sockets, whose
// paths are limited to 107 bytes. The caller removes it.
func TempDir() (string, error) { return os.MkdirTemp("", "svc") }
