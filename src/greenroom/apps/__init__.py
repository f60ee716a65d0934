"""Apps: a root agent with its policies, and loaders that find apps on disk.

`app` is the record and `loader` the contract. `load_directory` finds apps in a folder (`find_apps`,
`folder_watch`), `load_built` in archives; `isolation` keeps their modules apart. `yaml_config/`
reads agents from YAML, by way of `load_yaml`. `describe` and `graph` show an app, `agent_files`
edits it.
"""
