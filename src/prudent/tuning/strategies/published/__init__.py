"""The strategies of the papers, step by step as they were published: `options: {as: published}`."""
