package launch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Manager starts `svc controller-manager` for a server that was started with
// --controllers= and returns when it works, as the lease's holder, say.
func (s *Server) Manager(ctx context.Context, flags ...string) (*Process, error) {
	p, err := s.StandbyManager(flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		select {
		case <-p.Exited():
			return false, fmt.Errorf("it ended at once")
		default:
			return strings.Contains(p.Output(), working), nil
		}
	}); err != nil {
		p.Kill()
		return nil, fmt.Errorf("svc controller-manager: %w\n%s", err, p.Output())
	}
	return p, nil
}

// StandbyManager is Manager without waiting until it works: another may.
func (s *Server) StandbyManager(flags ...string) (*Process, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	args := append([]string{"controller-manager", "--svcconfig=" + filepath.Join(s.DataDir, "controller-manager.svcconfig"), "-v=2", "--secure-port=0"}, flags...)
	return Start(nil, binary, args...)
}

// working is what the manager logs when its controllers begin to work.
const working = "Started controllers"
