package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// Config is a docker configuration: logins by registry.
type Config map[string]Login

// registries returns the keys in order.
func (c Config) registries() []string { return slices.Sorted(maps.Keys(c)) }

// errUnreadable does not quote the data, which may be secret.
var errUnreadable = errors.New("not a docker configuration: invalid JSON, or an auth field that is not base64(username:password)")

// ParseConfigJSON parses docker's config.json, which pull secrets have in
// .dockerconfigjson.
func ParseConfigJSON(data []byte) (Config, error) {
	var file struct {
		Auths Config `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errUnreadable
	}
	return file.Auths, nil
}

// ParseConfig parses the .dockercfg of docker before version 1.7.
func ParseConfig(data []byte) (Config, error) {
	var config Config
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, errUnreadable
	}
	return config, nil
}

// UnmarshalJSON decodes a login; its auth field, if present, takes precedence over
// username and password.
func (l *Login) UnmarshalJSON(data []byte) error {
	var entry struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     string `json:"auth"`
	}
	if err := json.Unmarshal(data, &entry); err != nil {
		return err
	}
	l.Username, l.Password = entry.Username, entry.Password
	if entry.Auth == "" {
		return nil
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(entry.Auth), "=") {
		encoding = base64.StdEncoding
	}
	decoded, err := encoding.DecodeString(entry.Auth)
	if err != nil {
		return err
	}
	username, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return errUnreadable
	}
	l.Username, l.Password = username, password
	return nil
}
