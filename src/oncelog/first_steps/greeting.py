"""The words for a person once a server or a cluster that has secured itself is up: how to get in."""

from oncelog.first_steps.files import SecureFolder
from oncelog.server.secure import USER


def greeting(folder: SecureFolder, servers: str, users: int, *, who: str, first_command: str) -> str:
    """`who`: server or cluster; `users`: how many there are; `first_command`, of oncelog, shows something."""
    if folder.password() is None:
        return (
            f"The user {USER} may do everything, and nothing here has its password. If nobody knows it, stop {who}, "
            f"and start again after\n  {folder.remedy}"
        )
    if users == 1:
        beginning = f"Only the user {USER} gets in, by password, and may do everything. These files have the password:"
    else:
        beginning = f"{users} users get in by password. These files have that of {USER}, who may do everything:"
    return (
        f"{beginning}\n"
        f"  {first_command} -F {folder.client_file}\n"
        f"  kafka-topics.sh --bootstrap-server {servers} --command-config {folder.java_file} --list\n"
        f"Clients on other machines need a copy of one of them, and of {folder.authority_file}."
    )
