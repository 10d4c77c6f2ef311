package main

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// agentSystem is a node agent with an API server of svc and its own containerd.
// Only the agent is measured.
type agentSystem struct {
	name    string
	kind    launch.AgentKind
	api     *svcSystem
	machine *launch.Machine // nil before the first process starts
	agent   *launch.Agent
	program string
	// small is whether the agent's directory is on a disk of its own, which is small.
	small bool
}

// agents returns svclet and kubelet.
func agents(o options) ([]system, error) {
	if why := launch.WhyNoNode(); why != "" {
		return nil, errors.New(why)
	}
	if err := o.need("svc"); err != nil {
		return nil, err
	}
	var systems []system
	for _, s := range []struct {
		name, flag string
		kind       launch.AgentKind
	}{{"svc", "svclet", launch.Svclet}, {"kube", "kubelet", launch.Kubelet}} {
		if *o.binaries()[s.flag] == "" {
			continue
		}
		if err := o.need(s.flag); err != nil {
			return nil, err
		}
		api, err := newSVC(o.svc)
		if err != nil {
			return nil, err
		}
		systems = append(systems, &agentSystem{name: s.name, kind: s.kind, api: api, program: *o.binaries()[s.flag]})
	}
	if len(systems) == 0 {
		return nil, errNothing
	}
	return systems, nil
}

func (s *agentSystem) Name() string                            { return s.name }
func (s *agentSystem) Binaries() []string                      { return []string{s.program} }
func (s *agentSystem) URL() string                             { return s.api.URL() }
func (s *agentSystem) Config(dir string) (*rest.Config, error) { return s.api.Config(dir) }

func (s *agentSystem) Processes(dir string) ([]process, error) {
	processes, err := apiServer(s.api, dir)
	if err != nil {
		return nil, err
	}
	if s.machine, err = launch.NewMachine(context.Background()); err != nil {
		return nil, err
	}
	if s.agent, err = s.machine.NewAgent(s.kind, s.program, benchNode); err != nil {
		return nil, err
	}
	if s.small {
		if err := s.useSmallDisk(); err != nil {
			return nil, err
		}
	}
	return append(processes, process{
		name: string(s.kind), path: s.program, args: s.agent.Args,
		prepare: func(context.Context) error {
			authority, err := launch.ReadAuthority(filepath.Join(dir, "pki", "ca.crt"), filepath.Join(dir, "pki", "ca.key"))
			if err != nil {
				return err
			}
			return s.agent.Configure(launch.Cluster{Server: s.URL(), Authority: authority})
		},
	}), nil
}

// Clean stops the containerd and its pods.
func (s *agentSystem) Clean() error {
	if s.machine == nil {
		return nil
	}
	machine := s.machine
	s.machine = nil
	return machine.Remove()
}
